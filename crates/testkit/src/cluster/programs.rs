//! Third-party programs, which are built from Go modules into a cache folder, or taken from the system's packages.
//!
//! The cache is `$XDG_CACHE_HOME/maglor` (`~/.cache/maglor`). The name of each folder in it contains the version, and a
//! digest of the files that pin the build (`crates/testkit/cluster/go`). A folder gets this name when it is complete.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use aws_lc_rs::digest;

use crate::cluster::error::{At as _, ClusterError, run};

/// The programs of one Go module in `crates/testkit/cluster/go`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suite {
    module: &'static str,
    version: &'static str,
    packages: &'static [&'static str],
    flags: &'static str,
    /// Build tags, separated by commas.
    tags: &'static str,
    /// Whether the program is the test binary of its only package, `MODULE.test`.
    tests: bool,
    /// The duration of the build with an empty cache, on two cores.
    takes: &'static str,
}

/// Kubernetes with etcd, and the DNS server and pause program that pods need.
pub(crate) const KUBERNETES: Suite = Suite {
    module: "kubernetes",
    version: "1.34.4",
    packages: &[
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-proxy",
        "k8s.io/kubernetes/cmd/kube-scheduler",
        "k8s.io/kubernetes/cmd/kubectl",
        "k8s.io/kubernetes/cmd/kubelet",
        "./coredns",
        "./etcd",
        "./pause",
    ],
    flags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4 \
            -X k8s.io/component-base/version.gitMajor=1 \
            -X k8s.io/component-base/version.gitMinor=34 \
            -X k8s.io/component-base/version.gitTreeState=clean",
    tags: "",
    tests: false,
    takes: "8 to 15 minutes",
};

/// The oldest Kubernetes on which the tests run, without dependencies.
const KUBERNETES_OLDEST: Suite = Suite {
    module: "kubernetes-1.30",
    version: "1.30.14",
    packages: &[
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-proxy",
        "k8s.io/kubernetes/cmd/kube-scheduler",
        "k8s.io/kubernetes/cmd/kubelet",
    ],
    flags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.30.14 \
            -X k8s.io/component-base/version.gitMajor=1 \
            -X k8s.io/component-base/version.gitMinor=30 \
            -X k8s.io/component-base/version.gitTreeState=clean",
    tags: "",
    tests: false,
    takes: "8 to 15 minutes",
};

/// The programs that clusters of every version share. An older kubectl reads YAML that begins with a brace as JSON.
const SHARED: [&str; 4] = ["coredns", "etcd", "kubectl", "pause"];

/// The environment variable that selects the version of Kubernetes: `1.34`, the default, or `1.30`.
const VERSION: &str = "MAGLOR_KUBERNETES";
const OLDEST: &str = "1.30";

/// Returns whether the selected version of Kubernetes is the oldest one.
pub(crate) fn is_oldest() -> bool {
    env::var(VERSION).is_ok_and(|version| version == OLDEST)
}

/// kwok, which simulates nodes and pods.
pub(crate) const KWOK: Suite = Suite {
    module: "kwok",
    version: "0.8.0",
    packages: &["sigs.k8s.io/kwok/cmd/kwok"],
    flags: "-s -w",
    tags: "",
    tests: false,
    takes: "2 minutes",
};

/// Helm, which renders the same chart as `maglor install`.
pub(crate) const HELM: Suite = Suite {
    module: "helm",
    version: "3.22.0",
    packages: &["helm.sh/helm/v3/cmd/helm"],
    flags: "-s -w",
    tags: "",
    tests: false,
    takes: "2 minutes",
};

/// Istio's echo programs, which the Gateway API's conformance suite uses.
pub(crate) const ECHO: Suite = Suite {
    module: "echo",
    version: "20260827",
    packages: &[
        "istio.io/istio/pkg/test/echo/cmd/client",
        "istio.io/istio/pkg/test/echo/cmd/server",
    ],
    flags: "-s -w",
    tags: "",
    tests: false,
    takes: "2 minutes",
};

/// The Gateway API's conformance suite.
pub(crate) const CONFORMANCE: Suite = Suite {
    module: "conformance",
    version: "1.6.3",
    packages: &["sigs.k8s.io/gateway-api/conformance"],
    flags: "-s -w",
    tags: "",
    tests: true,
    takes: "2 minutes",
};

/// Prometheus and promtool, which scrape and check our metrics. Without service discovery, of which no test uses any, and
/// without the web page.
pub(crate) const PROMETHEUS: Suite = Suite {
    module: "prometheus",
    version: "3.16.0",
    packages: &[
        "github.com/prometheus/prometheus/cmd/prometheus",
        "github.com/prometheus/prometheus/cmd/promtool",
    ],
    flags: "-s -w",
    tags: "remove_all_sd",
    tests: false,
    takes: "5 minutes",
};

/// Jaeger, which collects spans and returns traces; without its page.
pub(crate) const JAEGER: Suite = Suite {
    module: "jaeger",
    version: "1.76.0",
    packages: &["github.com/jaegertracing/jaeger/cmd/all-in-one"],
    flags: "-s -w",
    tags: "",
    tests: false,
    takes: "5 minutes",
};

/// A client and a server for gRPC calls and streams, with grpc-go.
pub(crate) const STREAMS: Suite = Suite {
    module: "streams",
    version: "1.85.0",
    packages: &["."],
    flags: "-s -w",
    tags: "",
    tests: false,
    takes: "a minute",
};

/// The echo program that the suite's tests for Gateways use.
pub(crate) const ECHO_BASIC: Suite = Suite {
    module: "conformance",
    version: "1.6.3-echo",
    packages: &["sigs.k8s.io/gateway-api/conformance/echo-basic"],
    flags: "-s -w",
    tags: "",
    tests: false,
    takes: "1 minute",
};

/// The programs of the system, with their Debian packages.
const SYSTEM: [(&str, &str); 5] = [
    // Not `bridge`: iproute2 has a program of that name, too.
    ("host-local", "containernetworking-plugins"),
    ("containerd", "containerd"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("runc", "runc"),
];

/// The folders of CNI plugins, which depend on the distribution.
const PLUGINS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];

/// Returns the path of `helm`. If it does not exist, it is built if `build` is set.
///
/// # Errors
///
/// The program does not exist, or could not be built.
pub fn helm(build: bool) -> Result<PathBuf, ClusterError> {
    let folder = match build {
        true => HELM.ready(|line| eprintln!("{line}"))?,
        false => HELM.folder()?,
    };
    let program = folder.join("helm");
    match program.is_file() {
        true => Ok(program),
        false => Err(ClusterError::Missing {
            what: "helm".into(),
            hint: "cargo xtask e2e builds it".into(),
        }),
    }
}

/// Returns the path of Jaeger's program with all parts in one process. If it does not exist, it is built.
///
/// # Errors
///
/// The program could not be built.
pub fn jaeger() -> Result<PathBuf, ClusterError> {
    let folder = JAEGER.ready(|line| eprintln!("{line}"))?;
    Ok(folder.join("all-in-one"))
}

/// Returns the path of `streams`: a server of gRPC's test service (`-serve ADDR`), and clients of it that report
/// failures (`-call ADDR`), with grpc-go. If it does not exist, it is built.
///
/// # Errors
///
/// The program could not be built.
pub fn streams() -> Result<PathBuf, ClusterError> {
    let folder = STREAMS.ready(|line| eprintln!("{line}"))?;
    Ok(folder.join("streams"))
}

/// Returns the folder with `prometheus` and `promtool`. If it does not exist, they are built.
///
/// # Errors
///
/// The programs could not be built.
pub fn prometheus() -> Result<PathBuf, ClusterError> {
    PROMETHEUS.ready(|line| eprintln!("{line}"))
}

/// Returns the folder with the programs of Kubernetes, in the version that `MAGLOR_KUBERNETES` selects. If it does not
/// exist, it is built.
///
/// # Errors
///
/// There is no such version, or it cannot be built.
pub(crate) fn kubernetes(say: fn(&str)) -> Result<PathBuf, ClusterError> {
    let version = env::var(VERSION).ok();
    match version.as_deref() {
        None | Some("1.34") => KUBERNETES.ready(say),
        Some(OLDEST) => {
            let (latest, folder) = (KUBERNETES.ready(say)?, KUBERNETES_OLDEST.ready(say)?);
            for program in SHARED {
                let link = folder.join(program);
                if !link.exists() {
                    fs::hard_link(latest.join(program), &link).at(&link)?;
                }
            }
            Ok(folder)
        }
        Some(other) => Err(ClusterError::Missing {
            what: format!("Kubernetes {other}"),
            hint: format!("{VERSION} is 1.30 or 1.34"),
        }),
    }
}

impl Suite {
    /// Returns the folder for the built programs of the suite.
    fn folder(&self) -> Result<PathBuf, ClusterError> {
        let digest = digest_of(&sources(self.module))?;
        Ok(cache()?.join(format!("{}-{}-{digest}", self.module, self.version)))
    }

    /// Returns the folder with the programs of the suite. If it does not exist, it is built.
    ///
    /// # Errors
    ///
    /// Go is missing, or a module could not be downloaded or built.
    pub(crate) fn ready(&self, say: fn(&str)) -> Result<PathBuf, ClusterError> {
        let source = sources(self.module);
        let digest = digest_of(&source)?;
        let cache = cache()?;
        let folder = cache.join(format!("{}-{}-{digest}", self.module, self.version));
        let lock = cache.join(format!("{}.lock", self.module));
        let lock_file = File::create(&lock).at(&lock)?;
        // Of two concurrent starts only one builds.
        lock_file.lock().at(&lock)?;
        if folder.is_dir() {
            return Ok(folder);
        }
        let (module, version) = (self.module, self.version);
        say(&format!(
            "building {module} {version}; this happens once and takes {}",
            self.takes
        ));
        let partial = cache.join(format!("{module}-{version}-{digest}.partial"));
        if partial.exists() {
            fs::remove_dir_all(&partial).at(&partial)?;
        }
        fs::create_dir_all(&partial).at(&partial)?;
        let mut go = Command::new("go");
        let (task, output) = if self.tests {
            (&["test", "-c"][..], partial.join(format!("{module}.test")))
        } else {
            (&["build"][..], partial.clone())
        };
        go.args(task).args(["-mod=readonly", "-trimpath"]);
        go.args(["-ldflags", self.flags, "-tags", self.tags]);
        go.arg("-o").arg(&output);
        go.args(self.packages);
        // Static, so that the same files can be added to images.
        go.env("CGO_ENABLED", "0").current_dir(&source);
        match run(&mut go) {
            Ok(_) => {}
            Err(_) if find("go").is_none() => {
                return Err(ClusterError::Missing {
                    what: "go".into(),
                    hint: "install Go 1.26 or newer, with which Kubernetes is built".into(),
                });
            }
            Err(error) => return Err(error),
        }
        fs::rename(&partial, &folder).at(&folder)?;
        Ok(folder)
    }
}

/// Checks that the system's programs are installed, and installs missing packages if possible (as root on a system with
/// apt).
///
/// # Errors
///
/// A program is missing and cannot be installed here.
pub(crate) fn want_system_programs(say: fn(&str)) -> Result<(), ClusterError> {
    let missing = || SYSTEM.iter().filter(|(program, _)| find(program).is_none());
    let packages: Vec<_> = missing().map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let hint = format!(
        "on Debian or Ubuntu: sudo apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    if rustix::process::geteuid().is_root() && find("apt-get").is_some() {
        say(&format!("installing {}", packages.join(", ")));
        let apt = |arguments: &[&str]| {
            let mut apt = Command::new("apt-get");
            run(apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
        };
        apt(&["update", "-qq"])?;
        apt(&[
            &["install", "-y", "-qq", "--no-install-recommends"],
            &packages[..],
        ]
        .concat())?;
    }
    match missing().next() {
        None => Ok(()),
        Some((program, _)) => Err(ClusterError::Missing {
            what: (*program).to_owned(),
            hint,
        }),
    }
}

/// Returns the path of a program of the system; `None` if it is missing. Debian installs servers outside the `PATH` of
/// users.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin", "/usr/local/go/bin"].map(PathBuf::from);
    let places = env::split_paths(&path).chain(more);
    let mut places = places.chain(PLUGINS.map(PathBuf::from));
    places.find_map(|place| Some(place.join(program)).filter(|path| path.is_file()))
}

/// Returns the folder of the CNI plugins.
pub(crate) fn plugins() -> &'static str {
    let found = PLUGINS
        .iter()
        .find(|folder| Path::new(folder).join("host-local").is_file());
    found.unwrap_or(&PLUGINS[0])
}

/// Returns the folder of everything that is kept between runs.
///
/// # Errors
///
/// There is no home folder, or the folder cannot be written to.
pub(crate) fn cache() -> Result<PathBuf, ClusterError> {
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(home).ok_or_else(|| ClusterError::Missing {
        what: "HOME".into(),
        hint: "the location of the cache depends on it; set HOME or XDG_CACHE_HOME".into(),
    })?;
    let folder = base.join("maglor");
    fs::create_dir_all(&folder).at(&folder)?;
    Ok(folder)
}

/// Returns the folder with the files that pin the build of a Go module.
pub(crate) fn sources(module: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("cluster/go")
        .join(module)
}

/// Returns the first eight digits of a digest of all files of a folder, including their names.
fn digest_of(folder: &Path) -> Result<String, ClusterError> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).at(&folder)?;
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read(&path).at(&path)?;
            context.update(path.file_name().unwrap_or_default().as_encoded_bytes());
            context.update(&text);
        }
    }
    let digest = context.finish();
    Ok(crate::cluster::image::hex(&digest.as_ref()[..4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pins_a_build_changes_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/main.go"), "package main").unwrap();
        let before = digest_of(folder.path()).unwrap();
        assert_eq!(before.len(), 8);
        assert_eq!(digest_of(folder.path()).unwrap(), before);
        fs::write(folder.path().join("inner/main.go"), "package other").unwrap();
        assert_ne!(digest_of(folder.path()).unwrap(), before);
    }

    #[test]
    fn every_module_of_a_suite_is_there() {
        for suite in [
            CONFORMANCE,
            ECHO,
            HELM,
            KUBERNETES,
            KUBERNETES_OLDEST,
            KWOK,
            PROMETHEUS,
            STREAMS,
        ] {
            assert!(sources(suite.module).join("go.sum").is_file(), "{suite:?}");
        }
    }
}
