//! `cargo +nightly fuzz run elf`, in `crates/ringfence-learn`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_learn::fuzzing::elf(bytes));
