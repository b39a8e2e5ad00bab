//! `cargo +nightly fuzz run cache`, in `crates/ringfence-learn`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_learn::fuzzing::cache(bytes));
