//! `cargo +nightly fuzz run host`, in `crates/ringfence-policy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_policy::fuzzing::host(bytes));
