//! Arrow IPC.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| elench_fuzz::open("arrow", bytes));
