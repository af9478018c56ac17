//! A cluster with the mesh in it, from the programs of this workspace.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::{Cluster, Image, Kubectl, Options, static_program};

const LIMIT: Duration = Duration::from_secs(90);

/// See the module's documentation.
pub(crate) struct Installed {
    pub(crate) cluster: Cluster,
    maglor: PathBuf,
}

impl Installed {
    /// Starts a cluster and installs the mesh with values; `None`, with the printed reason, if that is not possible.
    pub(crate) fn start(name: &str, sets: &[&str]) -> Option<Self> {
        Self::start_on(name, Options::default().nodes, sets)
    }

    /// The same, with this many nodes.
    pub(crate) fn start_on(name: &str, nodes: u8, sets: &[&str]) -> Option<Self> {
        Self::start_apart(name, nodes, Duration::ZERO, sets)
    }

    /// The same, with this one-way delay between any two nodes.
    pub(crate) fn start_apart(
        name: &str,
        nodes: u8,
        delay: Duration,
        sets: &[&str],
    ) -> Option<Self> {
        let installed = Self::bare(name, nodes, delay)?;
        installed.install(sets);
        Some(installed)
    }

    /// A cluster that has the images, and no mesh yet.
    pub(crate) fn bare(name: &str, nodes: u8, delay: Duration) -> Option<Self> {
        if !Cluster::is_possible(|line| println!("{line}")).unwrap() {
            return None;
        }
        let images = ["maglor-proxy", "maglor-controller", "maglor-app"].map(|program| {
            let name = format!("{program}:e2e");
            match built(program) {
                Some(binary) => Image::of_linked_program(&name, &binary).unwrap(),
                None => Image::of_program(&name, &static_program(program, "dev").unwrap()),
            }
        });
        let maglor = built("maglor").unwrap_or_else(command_line);
        let started = Instant::now();
        let cluster = Cluster::start(Options {
            name: name.into(),
            nodes,
            delay,
            say: |line| println!("{line}"),
            ..Options::default()
        });
        let cluster = cluster.unwrap();
        println!("the cluster is up after {:?}", started.elapsed());
        for image in &images {
            cluster.load(image).unwrap();
        }
        Some(Self { cluster, maglor })
    }

    pub(crate) fn kubectl(&self) -> &Kubectl {
        self.cluster.kubectl()
    }

    /// The path of `maglor`.
    pub(crate) fn program(&self) -> &Path {
        &self.maglor
    }

    /// Runs `maglor`; returns its output.
    pub(crate) fn maglor(&self, arguments: &[&str]) -> String {
        let output = Command::new(self.program())
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn install(&self, sets: &[&str]) {
        let images = [
            "image=maglor-controller:e2e",
            "imagePullPolicy=Never",
            "sidecar.image=maglor-proxy:e2e",
            "sidecar.imagePullPolicy=Never",
        ];
        let sets = images.iter().chain(sets).flat_map(|set| ["--set", set]);
        let arguments: Vec<_> = ["install"].into_iter().chain(sets).collect();
        let begun = Instant::now();
        let kubectl = self.kubectl();
        kubectl.apply(&self.maglor(&arguments)).unwrap();
        let rollout = [
            "rollout",
            "status",
            "deployment/maglor-controller",
            "-n",
            "maglor",
            "--timeout=90s",
        ];
        if let Err(error) = kubectl.run(&rollout) {
            let pods = kubectl.run(&["describe", "pods", "-n", "maglor"]);
            let logs = kubectl.run(&[
                "logs",
                "-n",
                "maglor",
                "deployment/maglor-controller",
                "--tail=30",
            ]);
            panic!(
                "{error}\n{}\n{}",
                pods.unwrap_or_default(),
                logs.unwrap_or_default()
            );
        }
        println!("the mesh is installed after {:?}", begun.elapsed());
    }

    pub(crate) fn stop(self) {
        self.cluster.stop().unwrap();
    }
}

/// A program from the folder `MAGLOR_PROGRAMS`, to test other builds, such as a release.
fn built(program: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("MAGLOR_PROGRAMS")?;
    let program = PathBuf::from(folder).join(program);
    assert!(program.is_file(), "{}", program.display());
    Some(program)
}

/// The program `maglor`, for this machine.
fn command_line() -> PathBuf {
    let build = [
        "build",
        "--locked",
        "--quiet",
        "-p",
        "maglor-cli",
        "--bin",
        "maglor",
    ];
    let built = Command::new(env!("CARGO")).args(build).status().unwrap();
    assert!(built.success());
    // Beside the folder of this test.
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("maglor")
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("{what} after {:?}", started.elapsed());
}
