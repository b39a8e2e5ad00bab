//! `cargo +nightly fuzz run trees`, in `crates/ringfence-guest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_guest::fuzzing::trees(bytes));
