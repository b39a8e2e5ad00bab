//! `cargo +nightly fuzz run path`, in `crates/ringfence-policy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_policy::fuzzing::path(bytes));
