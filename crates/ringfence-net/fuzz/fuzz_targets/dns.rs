//! `cargo +nightly fuzz run dns`, in `crates/ringfence-net`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_net::fuzzing::dns(bytes));
