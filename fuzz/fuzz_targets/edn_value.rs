//! One EDN value: what is read prints as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| elench_fuzz::edn_value(bytes));
