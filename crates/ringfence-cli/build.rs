//! Names the program's entry: `ringfence-start`'s, which goes on to libc's. See
//! `crates/ringfence-start/src/entry.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let known = matches!(target("ARCH").as_str(), "x86_64" | "aarch64");
    if target("OS") == "linux" && known {
        println!("cargo::rustc-link-arg-bins=-Wl,--entry=ringfence_entry");
    }
}
