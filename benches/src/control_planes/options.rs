//! The command line of `control-planes`.

use std::path::{Path, PathBuf};

use clap::Parser;

use super::pods::SERVICES;
use crate::error::{Error, Result};
use crate::peer::{Peer, Subject, locate};

const CONTROLLER: &str = "maglor-controller";
const PROXY: &str = "maglor-proxy";

const ABOUT: &str = "\
Starts its own Kubernetes (see docs/cluster.md; needs root) with simulated pods, and one control plane after another, each
from its own chart: its containers run as processes beside the API server, and inject the pods. A real proxy runs for
every pod, and calls Services through the proxies of their pods. A round takes about 5 minutes for each control plane.
benches/README.md describes how the programs of Linkerd and Istio are built; without them, only Maglor is measured.

Examples:
  Maglor alone:
    sudo cargo xtask control-planes
  Beside Linkerd:
    sudo cargo xtask control-planes --linkerd-source linkerd2 --linkerd-controller linkerd-controller \\
      --linkerd-policy linkerd-policy-controller --linkerd linkerd2-proxy
  Beside Istio:
    sudo cargo xtask control-planes --istio-source istio --istio-discovery pilot-discovery --istio-agent pilot-agent";

/// Compare the memory, processor time and speed of the control planes of Maglor, Linkerd and Istio on a real Kubernetes.
#[derive(Debug, Clone, Parser)]
#[command(name = "control-planes", after_help = ABOUT)]
pub struct Options {
    /// Meshed pods; the numbers are measured in turn, ascending. Each is a multiple of 5: the pods of five Services.
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', default_values_t = [0, 25, 100], value_parser = pods)]
    pub pods: Vec<u32>,
    /// Duration of the idle phase at each number of pods, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub idle: u64,
    /// Changes of endpoints at each number of pods.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub changes: u32,
    /// Rounds; each starts every control plane once.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// `maglor-controller` to measure, a release build [default: in the directory of this program].
    #[arg(long, value_name = "FILE")]
    pub controller: Option<PathBuf>,
    /// `maglor-proxy` for the pods, a release build [default: in the directory of this program].
    #[arg(long, value_name = "FILE")]
    pub maglor: Option<PathBuf>,
    /// Checkout of linkerd/linkerd2, for its charts.
    #[arg(long, value_name = "DIR", requires_all = ["linkerd_controller", "linkerd_policy", "linkerd"])]
    pub linkerd_source: Option<PathBuf>,
    /// Linkerd's program with destination, identity, proxy-injector and sp-validator (`controller/cmd`).
    #[arg(long, value_name = "FILE", requires = "linkerd_source")]
    pub linkerd_controller: Option<PathBuf>,
    /// Linkerd's policy controller (`policy-controller`).
    #[arg(long, value_name = "FILE", requires = "linkerd_source")]
    pub linkerd_policy: Option<PathBuf>,
    /// `linkerd2-proxy` for the pods.
    #[arg(long, value_name = "FILE", requires = "linkerd_source")]
    pub linkerd: Option<PathBuf>,
    /// Checkout of istio/istio, for its charts and the bootstrap of its proxies.
    #[arg(long, value_name = "DIR", requires_all = ["istio_discovery", "istio_agent"])]
    pub istio_source: Option<PathBuf>,
    /// Istio's control plane (`pilot/cmd/pilot-discovery`).
    #[arg(long, value_name = "FILE", requires = "istio_source")]
    pub istio_discovery: Option<PathBuf>,
    /// `pilot-agent` for the pods (`pilot/cmd/pilot-agent`), with the Envoy of the other benchmarks.
    #[arg(long, value_name = "FILE", requires = "istio_source")]
    pub istio_agent: Option<PathBuf>,
    /// Directory for the results [default: results/DATE-control-planes in this crate].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// The programs of Maglor.
#[derive(Debug, Clone)]
pub(super) struct Maglor {
    pub(super) controller: PathBuf,
    pub(super) proxy: PathBuf,
}

/// The programs of Linkerd, and the folder of its charts.
#[derive(Debug, Clone)]
pub(super) struct Linkerd {
    pub(super) charts: PathBuf,
    pub(super) controller: PathBuf,
    pub(super) policy: PathBuf,
    pub(super) proxy: PathBuf,
}

/// The programs of Istio, and its checkout.
#[derive(Debug, Clone)]
pub(super) struct Istio {
    pub(super) source: PathBuf,
    pub(super) discovery: PathBuf,
    pub(super) agent: PathBuf,
    pub(super) envoy: Peer,
}

fn pods(text: &str) -> std::result::Result<u32, String> {
    let count: u32 = text
        .parse()
        .map_err(|error| format!("{error}; expected a number, such as 25"))?;
    let services = u32::from(SERVICES);
    match count.is_multiple_of(services) && count <= 200 {
        true => Ok(count),
        false => Err(format!(
            "must be at most 200 and a multiple of {services}, the number of Services"
        )),
    }
}

impl Options {
    /// Returns the numbers of pods, ascending.
    pub(super) fn steps(&self) -> Vec<u32> {
        let mut steps = self.pods.clone();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// Returns Maglor's programs.
    pub(super) fn maglor(&self) -> Result<Maglor> {
        Ok(Maglor {
            controller: built(self.controller.as_deref(), CONTROLLER)?,
            proxy: built(self.maglor.as_deref(), PROXY)?,
        })
    }

    /// Returns Linkerd's programs; `None` if they are not given.
    pub(super) fn linkerd(&self) -> Result<Option<Linkerd>> {
        let all = self
            .linkerd_source
            .as_ref()
            .zip(self.linkerd_controller.as_ref());
        let all = all.zip(self.linkerd_policy.as_ref().zip(self.linkerd.as_ref()));
        let Some(((source, controller), (policy, proxy))) = all else {
            return Ok(None);
        };
        let remedy = "--linkerd-source is a checkout of linkerd/linkerd2";
        let source = checkout(source, "charts/linkerd-control-plane", remedy)?;
        Ok(Some(Linkerd {
            charts: source.join("charts"),
            controller: program(controller)?,
            policy: program(policy)?,
            proxy: program(proxy)?,
        }))
    }

    /// Returns Istio's programs; `None` if they are not given.
    pub(super) fn istio(&self) -> Result<Option<Istio>> {
        let programs = self.istio_discovery.as_ref().zip(self.istio_agent.as_ref());
        let Some((source, (discovery, agent))) = self.istio_source.as_ref().zip(programs) else {
            return Ok(None);
        };
        let remedy = "--istio-source is a checkout of istio/istio";
        Ok(Some(Istio {
            source: checkout(source, "manifests/charts/base", remedy)?,
            discovery: program(discovery)?,
            agent: program(agent)?,
            envoy: locate(Subject::Envoy, None)?,
        }))
    }
}

/// Returns the path of a checkout that has this chart.
fn checkout(source: &Path, chart: &str, remedy: &str) -> Result<PathBuf> {
    match source.join(chart).join("Chart.yaml").is_file() {
        true => absolute(source),
        false => Err(Error::Missing {
            program: source.join(chart).display().to_string(),
            remedy: remedy.into(),
        }),
    }
}

/// Returns a program of this workspace: the given one, or the one beside this program.
fn built(given: Option<&Path>, name: &str) -> Result<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name(name));
    let found = given.map(PathBuf::from).or_else(beside);
    match found.filter(|path| path.is_file()) {
        Some(path) => absolute(&path),
        None => Err(Error::Missing {
            program: given.map_or_else(|| name.into(), |path| path.display().to_string()),
            remedy: format!("cargo build --release -p {name}"),
        }),
    }
}

fn program(path: &Path) -> Result<PathBuf> {
    match path.is_file() {
        true => absolute(path),
        false => Err(Error::Missing {
            program: path.display().to_string(),
            remedy: "benches/README.md, Control planes, describes how to build it".into(),
        }),
    }
}

/// Returns a path that is valid in any folder.
fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|source| Error::Io {
        what: path.display().to_string(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(arguments: &[&str]) -> std::result::Result<Options, String> {
        let line = std::iter::once("control-planes").chain(arguments.iter().copied());
        Options::try_parse_from(line).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_of_pods_are_sorted_and_validated() {
        Options::command().debug_assert();
        assert_eq!(parse(&[]).unwrap().steps(), [0, 25, 100]);
        assert_eq!(
            parse(&["--pods", "50,0,50"]).unwrap().steps(),
            [0, 50],
            "each number once"
        );
        for (value, expected) in [("7", "multiple of 5"), ("1000", "at most 200"), ("x", "25")] {
            let error = parse(&["--pods", value]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn programs_of_linkerd_are_all_needed() {
        let error = parse(&["--linkerd-source", "."]).unwrap_err();
        assert!(error.contains("--linkerd-policy"), "{error}");
        let options = parse(&[
            "--linkerd-source",
            "/nowhere",
            "--linkerd-controller",
            "a",
            "--linkerd-policy",
            "b",
            "--linkerd",
            "c",
        ]);
        let error = options.unwrap().linkerd().unwrap_err().to_string();
        assert!(error.contains("--linkerd-source"), "{error}");
        assert!(parse(&[]).unwrap().linkerd().unwrap().is_none());
    }

    #[test]
    fn programs_of_istio_are_all_needed() {
        let error = parse(&["--istio-source", "."]).unwrap_err();
        assert!(error.contains("--istio-agent"), "{error}");
        let arguments = "--istio-source /nowhere --istio-discovery a --istio-agent b";
        let arguments: Vec<_> = arguments.split(' ').collect();
        let error = parse(&arguments).unwrap().istio().unwrap_err().to_string();
        assert!(error.contains("--istio-source"), "{error}");
        assert!(parse(&[]).unwrap().istio().unwrap().is_none());
    }
}
