//! Link options of the binary.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("TARGET").as_deref() == Ok("x86_64-unknown-linux-gnu") {
        // Generic code is often identical for several types: keep it once. Elsewhere rustc may link
        // with GNU ld, which does not know the option.
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
}
