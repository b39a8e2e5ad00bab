//! `cargo +nightly fuzz run proxy`, in `crates/ringfence-net`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_net::fuzzing::proxy(bytes));
