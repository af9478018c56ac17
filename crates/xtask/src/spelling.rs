//! Spelling of documents and comments, by typos. `_typos.toml` has the terms of ours that it would correct.

use std::path::Path;

use crate::shell::Cargo;

/// Checks the whole workspace with the program `typos`.
pub(crate) fn check(typos: &Path) -> Result<(), String> {
    let command = Cargo::program(typos, "typos").args(["--format", "brief"]);
    if command.succeeds() {
        println!("spelling: no misspellings");
        return Ok(());
    }
    Err("misspellings; correct them, or add our terms to _typos.toml".into())
}
