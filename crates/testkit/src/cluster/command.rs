//! `cargo xtask cluster`: a cluster that outlives the command that started it.
//!
//! `up` starts this program again, as the process that holds the cluster. `down` stops that process, and removes what
//! is left of the cluster, as after a crash.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};

use crate::cluster::binaries::static_program;
use crate::cluster::conformance::Conformance;
use crate::cluster::error::{At as _, ClusterError};
use crate::cluster::image::Image;
use crate::cluster::kubectl::Kubectl;
use crate::cluster::lifecycle::{Cluster, load};
use crate::cluster::machine::enter;
use crate::cluster::options::Options;
use crate::cluster::scale;
use crate::cluster::state::{self, State};

const EXAMPLES: &str = "\
Examples:
  Two nodes, 5 ms apart, with a proxy and an application for them:
    cargo xtask cluster up --delay-ms 5
    cargo xtask cluster load maglor-proxy:dev=maglor-proxy maglor-app:dev=maglor-app
    cargo xtask cluster kubectl get nodes
    cargo xtask cluster exec node-1 ip route
    cargo xtask cluster down
  Scale: 100 simulated nodes, 1000 Services of 10 endpoints:
    cargo xtask cluster up --kwok 100
    cargo xtask cluster scale --services 1000 --endpoints 10";

/// The line that the holder prints when the cluster is ready.
const READY: &str = "ready";

/// Run a real Kubernetes cluster on this machine, without images or Docker. See docs/cluster.md.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask cluster", bin_name = "cargo xtask cluster", after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the cluster; several clusters can run at the same time.
    #[arg(long, global = true, value_name = "NAME", default_value = "maglor")]
    name: String,

    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run the Gateway API's conformance suite against the cluster, for meshes or, with `--gateways`, for Gateways.
    Conformance(Conformance),

    /// Stop the cluster and remove all of its files and processes, including those that a crash has left.
    Down,

    /// Run a program of the host in a machine (`control` or a node), with the machine's network and processes.
    Exec {
        /// Name of the machine.
        machine: String,

        /// Program and its arguments.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            required = true,
            value_name = "COMMAND"
        )]
        command: Vec<String>,
    },

    /// Start a cluster and keep it running until this process ends; used by `up`.
    #[command(hide = true)]
    Hold(Shape),

    /// Write images of static programs to files for `docker load` and `ctr image import`.
    Image {
        /// Name of the image and its program, as for `load`.
        #[arg(required = true, value_name = "IMAGE=BINARY")]
        images: Vec<String>,

        /// Directory for the files, each of which is named after its program.
        #[arg(long, value_name = "DIR", default_value = "target/images")]
        out: PathBuf,

        /// Cargo profile for building the programs.
        #[arg(long, default_value = "release")]
        profile: String,
    },

    /// Run kubectl as the administrator.
    #[command(disable_help_flag = true)]
    Kubectl {
        /// Arguments of kubectl.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGUMENT"
        )]
        arguments: Vec<String>,
    },

    /// Load images of static programs into every node, for use with `imagePullPolicy: Never`.
    Load {
        /// Name of the image, and its program: a file, or one of maglor-proxy, maglor-app, maglor-controller and
        /// maglor, which are built.
        #[arg(required = true, value_name = "IMAGE=BINARY")]
        images: Vec<String>,

        /// Cargo profile for building the programs.
        #[arg(long, default_value = "dev")]
        profile: String,
    },

    /// Create Services with simulated pods in the namespace `scale`; requires the nodes of `up --kwok`.
    Scale {
        /// Number of Services.
        #[arg(long, value_name = "N", default_value_t = 100)]
        services: u32,

        /// Number of endpoints of each Service.
        #[arg(long, value_name = "N", default_value_t = 10)]
        endpoints: u32,
    },

    /// Show the running clusters.
    Status,

    /// Start a cluster and wait until its nodes are ready.
    Up(Shape),
}

#[derive(Args, Clone, Debug)]
struct Shape {
    /// Number of nodes that run containers, 1 to 16.
    #[arg(long, value_name = "N", default_value_t = 2)]
    nodes: u8,

    /// One-way delay between nodes in milliseconds, at most 5000, with an optional fraction.
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    delay_ms: f64,

    /// Number of additional nodes that exist only in the API and are kept ready by kwok.
    #[arg(long, value_name = "N", default_value_t = 0)]
    kwok: u16,
}

/// Runs the command.
///
/// # Errors
///
/// The command has failed; the message is one line.
pub fn run(arguments: Arguments) -> Result<(), ClusterError> {
    let name = arguments.name;
    match arguments.task {
        Task::Conformance(suite) => suite.run(&name, &kubectl(&state::read(&name)?)),
        Task::Down => down(&name),
        Task::Exec { machine, command } => exec(&state::read(&name)?, &machine, &command),
        Task::Hold(shape) => hold(shape.options(name)?),
        Task::Kubectl { arguments } => {
            let error = kubectl(&state::read(&name)?)
                .command()
                .args(&arguments)
                .exec();
            Err(not_started("kubectl", &error))
        }
        Task::Image {
            images,
            out,
            profile,
        } => write_all(&images, &out, &profile),
        Task::Load { images, profile } => load_all(&name, &images, &profile),
        Task::Scale {
            services,
            endpoints,
        } => make_services(&name, services, endpoints),
        Task::Status => status(&name),
        Task::Up(shape) => up(&name, &shape),
    }
}

impl Shape {
    fn options(&self, name: String) -> Result<Options, ClusterError> {
        let delay = Duration::try_from_secs_f64(self.delay_ms / 1000.0);
        Ok(Options {
            name,
            nodes: self.nodes,
            delay: delay.map_err(|_| ClusterError::Invalid {
                field: "delay-ms",
                reason: "must be 0 to 5000".into(),
            })?,
            simulated_nodes: self.kwok,
            say: |line| {
                // The receiver may be gone.
                let _ = writeln!(io::stdout(), "{line}");
            },
        })
    }
}

fn up(name: &str, shape: &Shape) -> Result<(), ClusterError> {
    let started = Instant::now();
    shape.options(name.to_owned())?.check()?;
    let own = Path::new("/proc/self/exe");
    let own = std::fs::read_link(own).at(own)?;
    // One pipe for all of its output: with our own streams it would keep our caller's streams open.
    let (output, input) = io::pipe().at(&own)?;
    let errors = input.try_clone().at(&own)?;
    let mut holder = {
        let mut command = Command::new(&own);
        command.args(["hold", "--name", name]);
        command.args(["--nodes", &shape.nodes.to_string()]);
        command.args(["--delay-ms", &shape.delay_ms.to_string()]);
        command.args(["--kwok", &shape.kwok.to_string()]);
        command.stdin(Stdio::null()).stdout(input).stderr(errors);
        let started = command.spawn();
        started.map_err(|error| not_started("the process that holds the cluster", &error))?
        // Drops the command, and with it our copies of the pipe's other end.
    };
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line == READY {
            let state = state::read(name)?;
            eprintln!("cluster ready after {} s", started.elapsed().as_secs());
            println!("export KUBECONFIG={}", state.kubeconfig.display());
            return Ok(());
        }
        eprintln!("{line}");
    }
    let status = holder.wait();
    Err(ClusterError::Ended {
        program: format!("the process that holds {name}"),
        status: status.map_or_else(|error| error.to_string(), |status| status.to_string()),
        detail: "see the output above".into(),
    })
}

/// Starts a cluster and holds it; returns only on an error.
fn hold(options: Options) -> Result<(), ClusterError> {
    // Detached from the terminal from which it was started.
    let _ = rustix::process::setsid();
    let _cluster = Cluster::start(options)?;
    let _ = writeln!(io::stdout(), "{READY}");
    loop {
        thread::park();
    }
}

fn down(name: &str) -> Result<(), ClusterError> {
    if state::end(name)? {
        eprintln!("cluster {name} stopped");
        Ok(())
    } else {
        Err(ClusterError::NotUp { name: name.into() })
    }
}

fn status(name: &str) -> Result<(), ClusterError> {
    let state = state::read(name)?;
    println!("KUBECONFIG={}", state.kubeconfig.display());
    println!(
        "delay between nodes: {}",
        humantime::format_duration(Duration::from_micros(state.delay_micros))
    );
    for machine in &state.machines {
        println!(
            "{:<10} {:<14} process {}",
            machine.name, machine.address, machine.init
        );
    }
    let nodes = kubectl(&state).nodes()?;
    let ready = nodes.iter().filter(|(_, ready)| *ready).count();
    println!("{ready} of {} nodes are ready", nodes.len());
    Ok(())
}

fn exec(state: &State, machine: &str, command: &[String]) -> Result<(), ClusterError> {
    let found = state.machines.iter().find(|one| one.name == machine);
    let found = found.ok_or_else(|| {
        let names: Vec<_> = state.machines.iter().map(|one| one.name.as_str()).collect();
        ClusterError::Invalid {
            field: "MACHINE",
            reason: format!("{machine} is not one of {}", names.join(", ")),
        }
    })?;
    let (program, arguments) = command.split_first().ok_or(ClusterError::Invalid {
        field: "COMMAND",
        reason: "is missing".into(),
    })?;
    let mut entered = enter(found.init, program);
    let error = entered
        .args(arguments)
        .env("KUBECONFIG", &state.kubeconfig)
        .exec();
    Err(not_started(program, &error))
}

fn load_all(name: &str, images: &[String], profile: &str) -> Result<(), ClusterError> {
    let state = state::read(name)?;
    for (image, binary) in pairs(images)? {
        let program = static_program(binary, profile)?;
        let inits = state.nodes().map(|node| node.init);
        load(
            &state::place(name)?,
            inits,
            &Image::of_program(image, &program),
        )?;
        eprintln!("{image} loaded on {} nodes", state.nodes().count());
    }
    Ok(())
}

fn write_all(images: &[String], folder: &Path, profile: &str) -> Result<(), ClusterError> {
    std::fs::create_dir_all(folder).at(folder)?;
    for (image, binary) in pairs(images)? {
        let program = static_program(binary, profile)?;
        let name = program.file_name().unwrap_or_default();
        let archive = folder.join(name).with_extension("tar");
        Image::of_program(image, &program).write(&archive)?;
        let bytes = archive.metadata().at(&archive)?.len();
        eprintln!("{image} written to {}, {bytes} bytes", archive.display());
    }
    Ok(())
}

/// Returns the names and programs of images, all of which are validated before anything is built.
fn pairs(images: &[String]) -> Result<Vec<(&str, &str)>, ClusterError> {
    let refused = |image: &String| ClusterError::Invalid {
        field: "IMAGE=BINARY",
        reason: format!("`{image}` is not an image name and a program, separated by `=`"),
    };
    let pairs = images.iter().map(|image| {
        let split = image.rsplit_once('=');
        let split = split.filter(|(name, binary)| !name.is_empty() && !binary.is_empty());
        split.ok_or_else(|| refused(image))
    });
    pairs.collect()
}

fn make_services(name: &str, services: u32, endpoints: u32) -> Result<(), ClusterError> {
    if u64::from(services) * u64::from(endpoints) > u64::from(scale::MOST) || services > scale::MOST
    {
        return Err(ClusterError::Invalid {
            field: "services × endpoints",
            reason: format!("must be at most {}", scale::MOST),
        });
    }
    let started = Instant::now();
    let kubectl = kubectl(&state::read(name)?);
    let ready = scale::fill(&kubectl, services, endpoints)?;
    eprintln!(
        "{ready} endpoints are ready after {} s",
        started.elapsed().as_secs()
    );
    Ok(())
}

fn kubectl(state: &State) -> Kubectl {
    Kubectl::new(state.kubectl.clone(), state.kubeconfig.clone())
}

fn not_started(program: &str, error: &io::Error) -> ClusterError {
    ClusterError::Command {
        command: program.to_owned(),
        detail: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_delay_that_is_none_is_refused() {
        for delay_ms in [-1.0, f64::NAN, f64::INFINITY] {
            let shape = Shape {
                nodes: 2,
                delay_ms,
                kwok: 0,
            };
            let error = shape.options("x".into()).unwrap_err();
            assert!(error.to_string().starts_with("delay-ms"), "{error}");
        }
    }
}
