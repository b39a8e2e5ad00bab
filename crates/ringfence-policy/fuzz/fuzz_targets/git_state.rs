//! `cargo +nightly fuzz run git_state`, in `crates/ringfence-policy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_policy::fuzzing::git_state(bytes));
