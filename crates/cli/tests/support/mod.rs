//! The command line as a program.

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
