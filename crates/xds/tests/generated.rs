//! The generated types match the `.proto` files; `UPDATE=1` regenerates them.
//!
//! They are checked in so that a build needs neither a compiler of `.proto` files nor the time that
//! one takes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The paths of a folder's files, relative to it.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|e| e == ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn texts(folder: &Path) -> BTreeMap<PathBuf, String> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.strip_prefix(folder).unwrap().to_owned(), text)
    };
    files(folder, "rs").into_iter().map(read).collect()
}

#[test]
fn the_generated_types_are_those_of_the_proto_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (protos, checked_in) = (root.join("proto"), root.join("src/gen"));
    let described = protox::compile(files(&protos, "proto"), [&protos]).unwrap();
    let fresh = tempfile::tempdir().unwrap();
    prost_build::Config::new()
        .out_dir(fresh.path())
        .include_file("mod.rs")
        .bytes([".google.protobuf.Any", ".maglor.identity.v1"])
        .compile_fds(described)
        .unwrap();
    let wanted = texts(fresh.path());
    if std::env::var_os("UPDATE").is_some() {
        fs::remove_dir_all(&checked_in).ok();
        fs::create_dir_all(&checked_in).unwrap();
        for (path, text) in &wanted {
            fs::write(checked_in.join(path), text).unwrap();
        }
    }
    let there = texts(&checked_in);
    let stale: Vec<_> = wanted
        .iter()
        .filter(|(path, text)| there.get(*path) != Some(text))
        .collect();
    let names: Vec<_> = stale.iter().map(|(path, _)| path).collect();
    assert!(
        names.is_empty() && there.len() == wanted.len(),
        "{names:?} are not what the .proto files say: UPDATE=1 cargo test -p maglor-xds --test generated"
    );
}
