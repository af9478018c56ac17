//! Runs the Gateway API's conformance suite, with its echo programs, against a running cluster.
//!
//! The suite creates its own namespaces, with injection enabled. For a mesh, it runs a client in one pod against
//! Services of others. For Gateways, the suite is the client itself, so it runs in the network of a node, where
//! Services can be reached. The results are written as the report that the Gateway API's project requires, next to the
//! log of the suite.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cluster::addresses::CONTROL;
use crate::cluster::credentials::self_signed;
use crate::cluster::error::{At as _, ClusterError, run};
use crate::cluster::image::Image;
use crate::cluster::kubectl::Kubectl;
use crate::cluster::lifecycle::load;
use crate::cluster::programs::{CONFORMANCE, ECHO, ECHO_BASIC, sources};
use crate::cluster::state::{self, State};

/// The images of the suite's tests for Gateways. The DNS server must run, but only tests of UDP use it, so the echo
/// program replaces it.
const BASIC_IMAGES: [&str; 3] = [
    "registry.k8s.io/coredns/coredns:v1.12.2",
    "registry.k8s.io/gateway-api/echo-basic:v1.5.1",
    "registry.k8s.io/gateway-api/echo-basic:v1.6.0-dev.3",
];

/// The name of the echo image in the suite's manifests.
const ECHO_IMAGE: &str = "registry.k8s.io/gateway-api/echo-advanced:v1.5.1";

/// The Go module that contains the resource definitions.
const DEFINITIONS: &str = "sigs.k8s.io/gateway-api";

/// The supported features: all that the tests for meshes require.
const FEATURES: &str = "Mesh,HTTPRoute,GRPCRoute,HTTPRouteParentRefPort,\
    HTTPRouteResponseHeaderModification,HTTPRoute303RedirectStatusCode,\
    HTTPRoute307RedirectStatusCode,HTTPRoute308RedirectStatusCode,MeshClusterIPMatching,\
    MeshConsumerRoute,MeshHTTPRouteRewritePath,MeshHTTPRouteSchemeRedirect,\
    MeshHTTPRouteRedirectPort,MeshHTTPRouteRedirectPath,\
    MeshHTTPRouteBackendRequestHeaderModification,MeshHTTPRouteQueryParamMatching,\
    MeshHTTPRouteNamedRouteRule";

/// The suites to run.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Conformance {
    /// Test Gateways of the class `maglor` instead of the mesh.
    #[arg(long)]
    gateways: bool,

    /// Profiles, separated by commas. [default: MESH-HTTP,MESH-GRPC; with --gateways GATEWAY-HTTP,GATEWAY-GRPC]
    #[arg(long, value_name = "LIST")]
    profiles: Option<String>,

    /// Features to test in addition to the core features, separated by commas. [default: those of a mesh; with
    /// --gateways those in the status of the class]
    #[arg(long, value_name = "LIST")]
    features: Option<String>,

    /// Label and annotation that enable injection in namespaces; empty for none.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        default_value = "maglor.dev/inject=enabled"
    )]
    inject: String,

    /// Directory for the log and the report.
    #[arg(long, value_name = "FOLDER", default_value = "target/conformance")]
    results: PathBuf,

    /// Additional arguments for the suite, such as --run-test=MeshBasic.
    #[arg(last = true, value_name = "ARGUMENT")]
    more: Vec<String>,
}

/// The numbers of tests of the suite, by outcome.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Counts {
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Conformance {
    /// Runs the suite and reports the results.
    ///
    /// # Errors
    ///
    /// A part cannot be built or installed, or a test fails.
    pub(crate) fn run(&self, name: &str, kubectl: &Kubectl) -> Result<(), ClusterError> {
        let state = state::read(name)?;
        let say = |line: &str| eprintln!("{line}");
        let echo = ECHO.ready(say)?;
        let suite = CONFORMANCE.ready(say)?.join("conformance.test");
        for text in definitions()? {
            kubectl.apply(&text)?;
        }
        load_echo(name, &state, &echo)?;
        if self.gateways {
            let echo = ECHO_BASIC.ready(say)?.join("echo-basic");
            for image in BASIC_IMAGES {
                let folder = state::place(name)?;
                let image = Image::of_program(image, &echo);
                load(&folder, state.nodes().map(|node| node.init), &image)?;
            }
        }

        fs::create_dir_all(&self.results).at(&self.results)?;
        let results = fs::canonicalize(&self.results).at(&self.results)?;
        let log = results.join("suite.log");
        let report = results.join("report.yaml");
        let counts = match self.gateways {
            false => self.run_suite(Command::new(&suite), kubectl.kubeconfig(), &log, &report)?,
            true => {
                let (command, kubeconfig) = on_node(name, &state, &suite, kubectl.kubeconfig())?;
                self.run_suite(command, &kubeconfig, &log, &report)?
            }
        };
        println!(
            "{} passed, {} failed, {} skipped",
            counts.passed, counts.failed, counts.skipped
        );
        eprintln!("see {} and {}", report.display(), log.display());
        if counts.failed > 0 || counts.passed == 0 {
            return Err(ClusterError::Command {
                command: "conformance.test".into(),
                detail: format!("see {}", log.display()),
            });
        }
        Ok(())
    }

    fn run_suite(
        &self,
        mut command: Command,
        kubeconfig: &Path,
        log: &Path,
        report: &Path,
    ) -> Result<Counts, ClusterError> {
        command.args([
            "-test.run=^TestConformance$",
            "-test.v",
            "-test.timeout=40m",
        ]);
        command.args([
            format!("--conformance-profiles={}", self.profiles()),
            format!("--namespace-labels={}", self.inject),
            format!("--namespace-annotations={}", self.inject),
            format!("--report-output={}", report.display()),
            format!("--version={}", env!("CARGO_PKG_VERSION")),
        ]);
        command.args([
            "--organization=maglor",
            "--project=maglor",
            "--mode=default",
        ]);
        command.args([
            concat!("--url=", env!("CARGO_PKG_REPOSITORY")),
            "--contact=none",
        ]);
        command.args(self.features());
        command.args(&self.more).env("KUBECONFIG", kubeconfig);
        let mut file = File::create(log).at(log)?;
        command.stderr(file.try_clone().at(log)?);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().at(log)?;
        let mut counts = Counts::default();
        for line in child
            .stdout
            .take()
            .into_iter()
            .flat_map(|out| BufReader::new(out).lines())
        {
            let line = line.at(log)?;
            writeln!(file, "{line}").at(log)?;
            // Most skipped tests do not apply to a mesh.
            if counts.add(&line) && !line.contains("--- SKIP") {
                eprintln!("{}", line.trim());
            }
        }
        let status = child.wait().at(log)?;
        if !status.success() && counts.failed == 0 {
            return Err(ClusterError::Ended {
                program: "conformance.test".into(),
                status: status.to_string(),
                detail: format!("see {}", log.display()),
            });
        }
        Ok(counts)
    }
}

impl Conformance {
    fn profiles(&self) -> &str {
        match (&self.profiles, self.gateways) {
            (Some(profiles), _) => profiles,
            (None, true) => "GATEWAY-HTTP,GATEWAY-GRPC",
            (None, false) => "MESH-HTTP,MESH-GRPC",
        }
    }

    /// Returns the flags for features. Without these flags, the suite reads the features from the class.
    fn features(&self) -> Vec<String> {
        let features = match (&self.features, self.gateways) {
            (Some(features), _) => Some(features.as_str()),
            (None, true) => None,
            (None, false) => Some(FEATURES),
        };
        let features = features.map(|list| format!("--supported-features={list}"));
        let class = self.gateways.then(|| "--gateway-class=maglor".to_owned());
        features.into_iter().chain(class).collect()
    }
}

/// Returns the command that runs the suite in the network of the first node, with access to the API server.
fn on_node(
    name: &str,
    state: &State,
    suite: &Path,
    kubeconfig: &Path,
) -> Result<(Command, PathBuf), ClusterError> {
    let text = fs::read_to_string(kubeconfig).at(kubeconfig)?;
    let text = text.replace("https://127.0.0.1:", &format!("https://{CONTROL}:"));
    let path = state::place(name)?.join("node.kubeconfig");
    fs::write(&path, text).at(&path)?;
    let node = state.nodes().next().map_or(0, |node| node.init);
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net=/proc/{node}/ns/net"))
        .arg("--")
        .arg(suite);
    Ok((command, path))
}

impl Counts {
    /// Counts a line that ends a test of the suite, and not a part of a test; returns whether it is such a line.
    fn add(&mut self, line: &str) -> bool {
        let Some(rest) = line.strip_prefix("    --- ") else {
            return false;
        };
        let counter = match rest.split_once(':') {
            Some(("PASS", _)) => &mut self.passed,
            Some(("FAIL", _)) => &mut self.failed,
            Some(("SKIP", _)) => &mut self.skipped,
            _ => return false,
        };
        *counter += 1;
        true
    }
}

/// Returns the definitions of the Gateway API's resources, standard channel, as YAML.
///
/// # Errors
///
/// The Go module that contains them is unavailable.
pub fn definitions() -> Result<Vec<String>, ClusterError> {
    let mut go = Command::new("go");
    go.args(["mod", "download", "-json", DEFINITIONS]);
    let text = run(go.current_dir(sources("conformance")))?;
    let module: Value = serde_json::from_str(&text).unwrap_or_default();
    let folder = Path::new(module["Dir"].as_str().unwrap_or_default()).join("config/crd/standard");
    let entries = fs::read_dir(&folder).at(&folder)?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let texts = files.iter().map(|file| fs::read_to_string(file).at(file));
    texts.collect()
}

fn load_echo(name: &str, state: &State, programs: &Path) -> Result<(), ClusterError> {
    let folder = state::place(name)?;
    let (certificate, key) = self_signed("echo")?;
    let mut files = Vec::new();
    for (file, text) in [("cert.crt", certificate), ("cert.key", key)] {
        let path = folder.join(file);
        fs::write(&path, text).at(&path)?;
        files.push((path, format!("/{file}")));
    }
    for program in ["client", "server"] {
        files.push((programs.join(program), format!("/usr/local/bin/{program}")));
    }
    let image = Image {
        name: ECHO_IMAGE.to_owned(),
        files,
        entrypoint: vec!["/usr/local/bin/server".into()],
    };
    load(&folder, state.nodes().map(|node| node.init), &image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_and_their_parts_are_not() {
        let log = "=== RUN   TestConformance/MeshBasic\n\
                   --- FAIL: TestConformance (9.00s)\n    \
                       --- PASS: TestConformance/MeshBasic (1.00s)\n        \
                           --- PASS: TestConformance/MeshBasic/Simple (0.10s)\n    \
                       --- FAIL: TestConformance/MeshPorts (1.00s)\n    \
                       --- SKIP: TestConformance/MeshSplit (0.00s)\n";
        let mut counts = Counts::default();
        let counted = log.lines().filter(|line| counts.add(line)).count();
        assert_eq!(counted, 3);
        let expected = Counts {
            passed: 1,
            failed: 1,
            skipped: 1,
        };
        assert_eq!(counts, expected);
    }
}
