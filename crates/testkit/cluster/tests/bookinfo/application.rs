//! The application: its folder in a checkout of Istio, and the archives of its images.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use maglor_testkit::cluster::{Cluster, Kubectl};

/// `samples/bookinfo` of a checkout of Istio.
const FOLDER: &str = "MAGLOR_BOOKINFO";
/// A folder of archives, as `docker save` writes them, with the images that the sample names.
const IMAGES: &str = "MAGLOR_BOOKINFO_IMAGES";

/// The definitions of Istio's resources, relative to the sample.
const DEFINITIONS: &str = "../../manifests/charts/base/files/crd-all.gen.yaml";

/// See the module's documentation.
pub(crate) struct Application {
    folder: PathBuf,
    archives: Vec<PathBuf>,
}

impl Application {
    /// The application that the environment names; `None`, with the printed reason, if it names none.
    pub(crate) fn given() -> Option<Self> {
        let (Some(folder), Some(images)) = (std::env::var_os(FOLDER), std::env::var_os(IMAGES))
        else {
            println!("skipped: {FOLDER} and {IMAGES} are not set; see docs/cluster.md");
            return None;
        };
        let folder = PathBuf::from(folder);
        let needed = [
            Path::new("platform/kube/bookinfo.yaml"),
            DEFINITIONS.as_ref(),
        ];
        for file in needed.map(|file| folder.join(file)) {
            assert!(file.is_file(), "{FOLDER}: {} is missing", file.display());
        }
        let entries = fs::read_dir(&images).unwrap().flatten();
        let paths = entries.map(|entry| entry.path().canonicalize().unwrap());
        let is_archive = |path: &PathBuf| path.extension() == Some(OsStr::new("tar"));
        let mut archives: Vec<_> = paths.filter(is_archive).collect();
        archives.sort();
        assert!(!archives.is_empty(), "{IMAGES}: there is no *.tar");
        Some(Self { folder, archives })
    }

    /// Loads the images into all nodes.
    pub(crate) fn load(&self, cluster: &Cluster) {
        for archive in &self.archives {
            cluster.load_archive(archive).unwrap();
        }
    }

    /// Installs the definitions of Istio's resources.
    pub(crate) fn define(&self, kubectl: &Kubectl) {
        kubectl.apply(&self.text(DEFINITIONS)).unwrap();
        let wait = ["wait", "--for=condition=Established", "--timeout=60s"];
        let kinds = [
            "crd/authorizationpolicies.security.istio.io",
            "crd/destinationrules.networking.istio.io",
            "crd/peerauthentications.security.istio.io",
            "crd/virtualservices.networking.istio.io",
        ];
        kubectl.run(&[&wait[..], &kinds].concat()).unwrap();
    }

    /// Applies a file of the sample as it is.
    pub(crate) fn apply(&self, kubectl: &Kubectl, file: &str) {
        kubectl.apply(&self.text(file)).unwrap();
    }

    /// The text of a file of the sample.
    pub(crate) fn text(&self, file: &str) -> String {
        let path = self.folder.join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}
