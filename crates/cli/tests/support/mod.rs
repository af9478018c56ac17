//! The command line as a program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) const MAGLOR: &str = env!("CARGO_BIN_EXE_maglor");

pub(crate) fn maglor(arguments: &[&str]) -> Output {
    let mut command = Command::new(MAGLOR);
    // No cluster that happens to be there.
    command.env("KUBECONFIG", "/nowhere").args(arguments);
    command.output().unwrap()
}

#[track_caller]
pub(crate) fn stdout(arguments: &[&str]) -> String {
    let output = maglor(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A program of the workspace.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = Path::new(MAGLOR).with_file_name(name);
    if !path.is_file() {
        let build = ["build", "--locked", "-p", name, "--bin", name];
        let built = Command::new(env!("CARGO")).args(build).status().unwrap();
        assert!(built.success() && path.is_file(), "{}", path.display());
    }
    path
}
