//! test.jepsen: checksums are mended first, so that what lies below them is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| elench_fuzz::jepsen(bytes));
