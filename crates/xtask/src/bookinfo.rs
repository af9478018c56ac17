//! `cargo xtask bookinfo`: follows Istio's documentation with its sample application in a mesh of Maglor, on a real
//! Kubernetes. The test itself is `crates/testkit/cluster/tests/bookinfo.rs`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::shell::Cargo;

/// Arguments of `cargo xtask bookinfo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The application: `samples/bookinfo` in a checkout of Istio.
    #[arg(long, value_name = "FOLDER")]
    app: PathBuf,

    /// Folder with the images that the application names, in archives (`*.tar`) of `docker save`.
    #[arg(long, value_name = "FOLDER")]
    images: PathBuf,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match (absolute(&options.app), absolute(&options.images)) {
        (Ok(app), Ok(images)) => Cargo::new("test")
            .env("MAGLOR_BOOKINFO", app)
            .env("MAGLOR_BOOKINFO_IMAGES", images)
            .args(["--locked", "-p", "maglor-testkit", "--test", "bookinfo"])
            .args(["--", "--ignored", "--nocapture"])
            .become_it(),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The test runs in another folder.
fn absolute(folder: &Path) -> Result<PathBuf, String> {
    let found = folder.canonicalize();
    found.map_err(|error| format!("{}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_is_named() {
        let error = absolute(Path::new("no/such/folder")).unwrap_err();
        assert!(error.starts_with("no/such/folder: "), "{error}");
    }
}
