//! Link options of the binary.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // Generic code is often identical for several types: keep it once.
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
}
