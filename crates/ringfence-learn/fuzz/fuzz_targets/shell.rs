//! `cargo +nightly fuzz run shell`, in `crates/ringfence-learn`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_learn::fuzzing::shell(bytes));
