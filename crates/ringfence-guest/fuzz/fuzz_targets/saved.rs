//! `cargo +nightly fuzz run saved`, in `crates/ringfence-guest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_guest::fuzzing::saved(bytes));
