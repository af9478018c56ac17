//! Link options of the binary.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = env::var("TARGET").unwrap_or_default();
    // On other targets rustc may link with GNU ld, which does not support the options.
    if target != "x86_64-unknown-linux-gnu" {
        return;
    }
    // Generic code is often identical for several types: keep it once.
    println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    // Functions that serve requests are contiguous (src/os/memory/files.rs); `cargo xtask hot-functions` lists them.
    let hot = concat!(env!("CARGO_MANIFEST_DIR"), "/hot-functions.txt");
    println!("cargo:rerun-if-changed=hot-functions.txt");
    println!("cargo:rustc-link-arg-bins=-Wl,--symbol-ordering-file={hot}");
    println!("cargo:rustc-link-arg-bins=-Wl,--no-warn-symbol-ordering");
    // Relative relocations as a bitmap, a thirtieth of their size: 4 % of the binary.
    if env::var("HOST").as_deref() == Ok(target.as_str()) && loads_packed_relocations() {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the C library here is glibc 2.36 or newer, the first one that can load them.
fn loads_packed_relocations() -> bool {
    let Ok(asked) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else {
        return false;
    };
    let said = String::from_utf8_lossy(&asked.stdout);
    let version = said.trim().strip_prefix("glibc ");
    let parts = version.and_then(|version| version.split_once('.'));
    parts.is_some_and(|(major, minor)| match (major.parse(), minor.parse()) {
        (Ok(major), Ok(minor)) => (major, minor) >= (2_u32, 36_u32),
        _ => false,
    })
}
