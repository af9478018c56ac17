//! `cargo xtask docs`: the documentation as a site with search.
//!
//! The pages stay readable on a code host. They are copied into a staging folder, links are rewritten there where the
//! site needs it, and mdBook makes the site from the copy.

mod index;
mod links;
pub(crate) mod markdown;
mod site;
mod stage;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use self::index::Index;
use crate::shell::{self, Cargo};
use crate::spelling;
use crate::tools;

/// Arguments of `cargo xtask docs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Also check the spelling, as `cargo xtask test` does.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let built = build().and_then(|()| match options.check {
        true => spelling::check(&tools::typos()?),
        false => Ok(()),
    });
    match built {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let root = shell::root();
    let index = Index::read(&root)?;
    let mdbook = tools::mdbook()?;
    let (staged, site) = (
        shell::target().join("docs-staging"),
        shell::target().join("docs-site"),
    );
    emptied(&staged)?;
    emptied(&site)?;
    let copied = stage::write(&root, &index, &staged)?;
    let made = Cargo::program(mdbook, "mdbook")
        .env("MDBOOK_LOG", "warn")
        .arg("build")
        .arg(&staged)
        .arg("--dest-dir")
        .arg(&site)
        .succeeds();
    if !made {
        return Err("mdbook failed".into());
    }
    let links = site::check(&site)?;
    println!(
        "{} pages, {copied} copied files, {links} links, none of them dead: {}",
        index.pages().len(),
        site.join("index.html").display()
    );
    Ok(())
}

/// An empty folder: pages that were renamed would stay.
fn emptied(folder: &Path) -> Result<(), String> {
    let in_folder = |error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(in_folder)?;
    }
    fs::create_dir_all(folder).map_err(in_folder)
}
