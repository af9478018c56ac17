//! Development tasks, `cargo xtask TASK`. One module per task; [`shell`] runs programs and
//! [`tools`] finds or installs those that are not part of Rust.

mod bookinfo;
mod compiler;
#[cfg(feature = "conformance")]
mod conformance;
mod demo;
mod docs;
mod e2e;
mod failures;
mod fuzz;
mod hot;
mod package;
mod readme;
mod samples;
mod shell;
mod spelling;
mod test;
mod tools;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use shell::Cargo;

/// The program of `cargo xtask cluster`.
const CLUSTER: [&str; 6] = [
    "-p",
    "maglor-testkit",
    "--features",
    "cluster",
    "--bin",
    "maglor-cluster",
];

/// Development tasks of Maglor.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Run Istio's sample application, with Istio's own resources, in a mesh on a real Kubernetes; see docs/cluster.md.
    Bookinfo(bookinfo::Options),

    /// Start or end a real Kubernetes on this machine, without images or Docker; see docs/cluster.md.
    ///
    /// Arguments are passed to the program: `cargo xtask cluster up --nodes 3`.
    #[command(disable_help_flag = true)]
    Cluster(PassedOn),

    /// Compare Maglor with HAProxy, nginx and Envoy; see benches/README.md.
    ///
    /// Installs HAProxy and nginx if possible (as root on Debian or Ubuntu), else reports what is missing. Arguments
    /// are passed to the comparison: `cargo xtask compare --quick`.
    #[command(disable_help_flag = true)]
    Compare(PassedOn),

    /// Compare the controller with the control planes of Linkerd and Istio on a real Kubernetes; see benches/README.md.
    ///
    /// Arguments are passed to the measurement: `cargo xtask control-planes --pods 0,50`.
    #[command(disable_help_flag = true)]
    ControlPlanes(PassedOn),

    /// Run HTTP/2, gRPC, WebSocket and endurance suites against the real proxy.
    #[cfg(feature = "conformance")]
    Conformance(conformance::Arguments),

    /// Run HTTP/2, gRPC, WebSocket and endurance suites against the real proxy; `mesh` and `gateway`: the Gateway
    /// API's suite against a cluster, see docs/cluster.md.
    #[cfg(not(feature = "conformance"))]
    #[command(disable_help_flag = true)]
    Conformance(PassedOn),

    /// Build and run a mesh with faults on this machine, or `demo balancing`: one proxy.
    #[command(disable_help_flag = true)]
    Demo(PassedOn),

    /// Measure how fast changes of a large, simulated cluster reach its proxies; see benches/README.md.
    ///
    /// Arguments are passed to the measurement: `cargo xtask distribution --proxies 100`.
    #[command(disable_help_flag = true)]
    Distribution(PassedOn),

    /// Build the documentation site with search, target/docs-site; `--check`: also check the spelling.
    Docs(docs::Options),

    /// Run an application with sidecars, and the controller, on a real Kubernetes, which is built the first time.
    E2e,

    /// Run every fuzz target of the workspace for a while; needs nightly Rust and cargo-fuzz.
    Fuzz(fuzz::Options),

    /// Run the hostile suite, compared with HAProxy, nginx and Envoy; see docs/hostile.md.
    ///
    /// Installs HAProxy and nginx if possible. Arguments are passed to the suite: `cargo xtask hostile --only
    /// maglor,nginx`.
    #[command(disable_help_flag = true)]
    Hostile(PassedOn),

    /// Find the functions that serve requests, for the linker; needs valgrind, takes some minutes.
    HotFunctions,

    /// Run emulated applications behind many proxies, compared with the simulator and Envoy; see benches/README.md.
    ///
    /// Arguments are passed to the experiments: `cargo xtask mesh --quick`.
    #[command(disable_help_flag = true)]
    Mesh(PassedOn),

    /// Build a Debian package and an archive of the programs, for this machine's architecture; see docs/packages.md.
    Package(package::Options),

    /// Compare four placements of an application on a real Kubernetes with delays between nodes; see
    /// benches/README.md.
    ///
    /// Arguments are passed to the experiment: `cargo xtask place --rounds 1`.
    #[command(disable_help_flag = true)]
    Place(PassedOn),

    /// Write the newest results of the comparison into README.md, and mark older results there and in docs/papers.
    ReadmeTable(readme::Options),

    /// Measure Maglor and Envoy while endpoints fail, overload and restart; see benches/README.md.
    ///
    /// Arguments are passed to the experiments: `cargo xtask resilience --quick`.
    #[command(disable_help_flag = true)]
    Resilience(PassedOn),

    /// Analyze the samples of Istio and the Gateway API, and tabulate which are supported; see docs/controller.md.
    Samples(samples::Options),

    /// Run all checks and tests: formatting, clippy, documentation, spelling, tests, dependencies, fuzzing.
    Test(test::Options),

    /// Put users on Istio's Bookinfo behind plain Kubernetes, in Maglor and in Istio; see benches/README.md.
    ///
    /// Arguments are passed to the experiment: `cargo xtask users --app FOLDER --images FOLDER`.
    #[command(disable_help_flag = true)]
    Users(PassedOn),
}

/// Arguments of the program that a task runs.
#[derive(Debug, clap::Args)]
struct PassedOn {
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    arguments: Vec<OsString>,
}

impl PassedOn {
    /// Installs the other proxies if possible, unless only help is wanted.
    fn want_peers(&self) {
        let help = ["--help", "-h"].map(OsString::from);
        if !self
            .arguments
            .iter()
            .any(|argument| help.contains(argument))
        {
            tools::want_programs(&[("haproxy", "haproxy"), ("nginx", "nginx-light")]);
        }
    }
}

/// Returns whether a suite needs a Kubernetes cluster.
#[cfg(not(feature = "conformance"))]
fn is_of_cluster(arguments: &[OsString]) -> bool {
    let first = arguments.first();
    first.is_some_and(|one| one == "gateway" || one == "mesh")
}

/// Builds releases of packages, and runs a measurement of them.
fn measure(packages: &[&str], program: &str, passed: &PassedOn) -> ExitCode {
    let build = Cargo::new("build").arg("--release");
    if !build.args(packages).succeeds() {
        return ExitCode::FAILURE;
    }
    Cargo::new("run")
        .args(["--release", "-p", "maglor-benches", "--bin", program, "--"])
        .args(&passed.arguments)
        .become_it()
}

fn main() -> ExitCode {
    if compiler::is_called() {
        return compiler::run();
    }
    let run = |package: &[&str]| Cargo::new("run").args(package).arg("--");
    match Task::parse() {
        Task::Bookinfo(options) => bookinfo::run(&options),
        Task::Cluster(passed) => run(&CLUSTER).args(passed.arguments).become_it(),
        Task::Compare(passed) => {
            passed.want_peers();
            run(&["--release", "-p", "maglor-benches", "--bin", "compare"])
                .args(passed.arguments)
                .become_it()
        }
        #[cfg(feature = "conformance")]
        Task::Conformance(arguments) => match conformance::run(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                // Not as a value of main, which would print a backtrace, too.
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        },
        // Suites of the mesh and its Gateways, on a Kubernetes cluster, are in another program.
        #[cfg(not(feature = "conformance"))]
        Task::Conformance(passed) if is_of_cluster(&passed.arguments) => {
            let gateways = passed.arguments[0] == "gateway";
            run(&CLUSTER)
                .arg("conformance")
                .args(gateways.then_some("--gateways"))
                .args(&passed.arguments[1..])
                .become_it()
        }
        #[cfg(not(feature = "conformance"))]
        Task::Conformance(passed) => run(&["-p", "maglor-xtask", "--features", "conformance"])
            .arg("conformance")
            .args(passed.arguments)
            .become_it(),
        Task::ControlPlanes(passed) => measure(
            &["-p", "maglor-controller", "-p", "maglor-proxy"],
            "control-planes",
            &passed,
        ),
        Task::Demo(passed) => demo::run(&passed.arguments),
        Task::Distribution(passed) => {
            measure(&["-p", "maglor-controller"], "distribution", &passed)
        }
        Task::Docs(options) => docs::run(&options),
        Task::E2e => e2e::run(),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Hostile(passed) => {
            passed.want_peers();
            run(&["--release", "-p", "maglor-benches", "--bin", "hostile"])
                .args(passed.arguments)
                .become_it()
        }
        Task::HotFunctions => hot::run(),
        Task::Mesh(passed) => run(&["--release", "-p", "maglor-benches", "--bin", "mesh"])
            .args(passed.arguments)
            .become_it(),
        Task::Package(options) => package::run(&options),
        Task::Place(passed) => run(&["--release", "-p", "maglor-benches", "--bin", "place"])
            .args(passed.arguments)
            .become_it(),
        Task::ReadmeTable(options) => readme::run(&options),
        Task::Resilience(passed) => {
            run(&["--release", "-p", "maglor-benches", "--bin", "resilience"])
                .args(passed.arguments)
                .become_it()
        }
        Task::Samples(options) => samples::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Users(passed) => run(&["--release", "-p", "maglor-benches", "--bin", "users"])
            .args(passed.arguments)
            .become_it(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Task::command().debug_assert();
    }

    #[test]
    fn arguments_are_passed_on_as_they_are() {
        let line = ["xtask", "demo", "--for", "5", "--help"];
        let Ok(Task::Demo(passed)) = Task::try_parse_from(line) else {
            unreachable!("it parses")
        };
        assert_eq!(passed.arguments, ["--for", "5", "--help"]);
    }
}
