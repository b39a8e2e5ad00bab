//! `cargo +nightly fuzz run files`, in `crates/ringfence-guest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_guest::fuzzing::files(bytes));
