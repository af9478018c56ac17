//! What experiments on a real Kubernetes share: the programs of the mesh, its installation, and waiting.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::{Cluster, Image, Kubectl, static_program};

use crate::error::{Doing, Error, Result};

/// The timeout of operations that should take seconds.
const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(500);

/// Names of Maglor's images and the policy to pull them, as values of the chart.
const IMAGES: [&str; 4] = [
    "--set=image=maglor-controller:bench",
    "--set=imagePullPolicy=Never",
    "--set=sidecar.image=maglor-proxy:bench",
    "--set=sidecar.imagePullPolicy=Never",
];

/// Maglor's programs, linked so that they run in images of their own.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    maglor: PathBuf,
    images: Vec<Image>,
}

impl Programs {
    /// Takes the programs from a folder, or builds them with a Cargo profile. `further` are programs beside the proxy and
    /// the controller that need an image, which is named `PROGRAM:bench`.
    pub(crate) fn new(folder: Option<&Path>, profile: &str, further: &[&str]) -> Result<Self> {
        let program = |name: &str| match folder {
            Some(folder) => Ok(folder.join(name)),
            None => static_program(name, profile),
        };
        let names = ["maglor-proxy", "maglor-controller"];
        let images = names.iter().chain(further).map(|name| {
            let binary = program(name)?;
            Ok(Image::of_linked_program(&format!("{name}:bench"), &binary)?)
        });
        Ok(Self {
            images: images.collect::<Result<_>>()?,
            maglor: program("maglor")?,
        })
    }

    /// Loads all images into all nodes.
    pub(crate) fn load(&self, cluster: &Cluster) -> Result<()> {
        let mut images = self.images.iter();
        Ok(images.try_for_each(|image| cluster.load(image))?)
    }

    /// Installs the mesh; `values` are arguments of `maglor install`.
    pub(crate) fn install(&self, cluster: &Cluster, values: &[&str]) -> Result<()> {
        let manifest = self.maglor(cluster, &[&["install"][..], &IMAGES, values].concat())?;
        cluster.kubectl().apply(&manifest)?;
        rolled_out(cluster.kubectl(), "maglor", "maglor-controller")
    }

    /// Runs `maglor` for this cluster and returns its output.
    pub(crate) fn maglor(&self, cluster: &Cluster, arguments: &[&str]) -> Result<String> {
        let command = || format!("maglor {}", arguments.join(" "));
        let output = Command::new(&self.maglor)
            .args(arguments)
            .env("KUBECONFIG", cluster.kubeconfig())
            .output()
            .doing(command())?;
        if !output.status.success() {
            return Err(Error::Command {
                command: command(),
                detail: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Waits until all pods of a Deployment are ready.
pub(crate) fn rolled_out(kubectl: &Kubectl, namespace: &str, name: &str) -> Result<()> {
    let limit = format!("--timeout={}s", PATIENCE.as_secs());
    let deployment = format!("deployment/{name}");
    let wait = ["rollout", "status", &deployment, "-n", namespace, &limit];
    let Err(error) = kubectl.run(&wait) else {
        return Ok(());
    };
    let pods = ["get", "pods", "-n", namespace, "-o", "wide"];
    let pods = kubectl.run(&pods);
    Err(Error::NotReady {
        name: deployment,
        seconds: PATIENCE.as_secs(),
        detail: format!("{error}\n{}", pods.unwrap_or_default()),
    })
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds()? {
        if started.elapsed() > PATIENCE {
            return Err(Error::late(what, started, "it still did not hold"));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}
