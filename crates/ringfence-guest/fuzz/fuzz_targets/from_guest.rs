//! `cargo +nightly fuzz run from_guest`, in `crates/ringfence-guest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_guest::fuzzing::from_guest(bytes));
