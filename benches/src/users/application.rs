//! The application and Istio, from folders that the command line names.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use maglor_testkit::cluster::Cluster;

use super::Options;
use crate::error::{Doing, Error, Result};

/// The Deployments of the sample.
pub(super) const DEPLOYMENTS: [&str; 6] = [
    "details-v1",
    "ratings-v1",
    "reviews-v1",
    "reviews-v2",
    "reviews-v3",
    "productpage-v1",
];
/// The names of their containers.
pub(super) const CONTAINERS: [&str; 4] = ["details", "ratings", "reviews", "productpage"];

/// The texts of the sample that are applied, and the archives of images.
#[derive(Debug)]
pub(super) struct Application {
    /// Services and Deployments.
    pub(super) services: String,
    /// The Gateway and its HTTPRoute.
    pub(super) gateway: String,
    /// The definitions of Istio's resources.
    pub(super) definitions: String,
    archives: Vec<PathBuf>,
}

/// Istio's manifest and the archives of its images.
#[derive(Debug)]
pub(super) struct Istio {
    pub(super) install: String,
    archives: Vec<PathBuf>,
}

impl Application {
    /// Reads the files.
    ///
    /// # Errors
    /// A file is missing, or there is no archive.
    pub(super) fn read(options: &Options) -> Result<Self> {
        let text = |file: &str| read(&options.app.join(file));
        Ok(Self {
            services: text("platform/kube/bookinfo.yaml")?,
            gateway: text("gateway-api/bookinfo-gateway.yaml")?,
            definitions: text("../../manifests/charts/base/files/crd-all.gen.yaml")?,
            archives: archives(&options.images)?,
        })
    }

    /// Loads the images into all nodes.
    pub(super) fn load(&self, cluster: &Cluster) -> Result<()> {
        load(cluster, &self.archives)
    }
}

impl Istio {
    /// Reads the files; `None` if the command line names no folder.
    ///
    /// # Errors
    /// A file is missing, or there is no archive.
    pub(super) fn read(options: &Options) -> Result<Option<Self>> {
        let Some(folder) = &options.istio else {
            return Ok(None);
        };
        Ok(Some(Self {
            install: read(&folder.join("install.yaml"))?,
            archives: archives(&folder.join("images"))?,
        }))
    }

    /// Loads the images into all nodes.
    pub(super) fn load(&self, cluster: &Cluster) -> Result<()> {
        load(cluster, &self.archives)
    }
}

fn load(cluster: &Cluster, archives: &[PathBuf]) -> Result<()> {
    let mut archives = archives.iter();
    Ok(archives.try_for_each(|archive| cluster.load_archive(archive))?)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).doing(path.display().to_string())
}

/// Returns the archives in a folder, in the order of their names.
fn archives(folder: &Path) -> Result<Vec<PathBuf>> {
    let name = || folder.display().to_string();
    let entries = fs::read_dir(folder).doing(name())?.flatten();
    let paths = entries.map(|entry| entry.path());
    let archives = paths.filter(|path| path.extension() == Some(OsStr::new("tar")));
    let absolute = archives.map(|path| path.canonicalize().doing(path.display().to_string()));
    let mut found = absolute.collect::<Result<Vec<_>>>()?;
    found.sort();
    match found.is_empty() {
        true => Err(Error::parse(name(), "there is no *.tar")),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_and_an_empty_folder_are_named() {
        let error = read(Path::new("no/such/file")).unwrap_err().to_string();
        assert!(error.starts_with("no/such/file: "), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let error = archives(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("there is no *.tar"), "{error}");
    }
}
