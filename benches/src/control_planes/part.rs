//! A program of a control plane, or the proxy of a pod, as a process in the network of the API server.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::network::{self, Network};
use crate::child::Guarded;
use crate::error::{Doing, Error, Result};
use crate::procfs::{self, CpuTime, Memory, Share};
use crate::{http, sys};

const POLL: Duration = Duration::from_millis(20);

/// Shows its folder to a program as `/run/linkerd`, in mounts of its own: Linkerd's programs read files at fixed paths.
const WITH_FOLDER: &str = r#"mount -t tmpfs tmpfs /run && mkdir /run/linkerd && mount --bind "$0" /run/linkerd && exec "$@""#;

/// How to start a program; it runs in the folder of its log.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    /// The folder that becomes `/run/linkerd`.
    pub(super) folder: Option<PathBuf>,
    /// Port and path of its readiness, over HTTP.
    pub(super) ready: (u16, &'static str),
}

/// A running program, which is ended when this is dropped.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    child: Guarded,
    ready: (SocketAddr, &'static str),
    log: PathBuf,
}

/// What a program has used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) memory: Memory,
    pub(super) share: Share,
    pub(super) cpu: CpuTime,
}

impl Part {
    /// Starts a program of a control plane, with its log in a folder.
    pub(super) fn start(recipe: &Recipe, logs: &Path) -> Result<Self> {
        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, recipe.ready.0));
        Self::run(recipe, logs, own, &mut recipe.command())
    }

    /// Starts the proxy of a pod in its network, with its log in a folder.
    pub(super) fn start_in(network: &Network, recipe: &Recipe, logs: &Path) -> Result<Self> {
        let own = recipe.command();
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", network.namespace.path()))
            .arg("--")
            .arg(own.get_program())
            .args(own.get_args())
            .gid(network::PROXIES);
        Self::run(recipe, logs, network.at(recipe.ready.0), &mut command)
    }

    fn run(recipe: &Recipe, logs: &Path, ready: SocketAddr, command: &mut Command) -> Result<Self> {
        let name = &recipe.name;
        let log = logs.join(format!("{name}.log"));
        let file = fs::File::create(&log).doing(format!("make {}", log.display()))?;
        let errors = file.try_clone().doing(format!("open {}", log.display()))?;
        let environment = recipe.environment.iter();
        command
            .envs(environment.map(|(name, value)| (name, value)))
            .current_dir(logs)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors);
        Ok(Self {
            child: Guarded::start_on(name, command, &sys::allowed_cpus())?,
            name: name.clone(),
            ready: (ready, recipe.ready.1),
            log,
        })
    }

    /// Asks it to end; see [`Guarded::ask_to_end`].
    pub(super) fn ask_to_end(&self) {
        self.child.ask_to_end();
    }

    /// Waits until it is ready, which may take until `limit` after the start.
    pub(super) async fn wait_ready(&mut self, started: Instant, limit: Duration) -> Result<()> {
        loop {
            let (address, path) = self.ready;
            let answer = http::text(address, "GET", path, String::new()).await;
            let Err(error) = answer else { return Ok(()) };
            if self.child.ended()?.is_some() || started.elapsed() > limit {
                let detail = format!("{error}; {}", self.last_line());
                return Err(Error::late(&self.name, started, detail));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns what it has used since its start.
    pub(super) fn usage(&self) -> Result<Usage> {
        let pid = self.child.pid();
        let alive = || format!("{} has ended; {}", self.name, self.last_line());
        let memory = procfs::memory(pid).map_err(|_| Error::protocol(alive()))?;
        Ok(Usage {
            memory,
            share: procfs::share(&[pid])?,
            cpu: procfs::cpu(&[pid])?,
        })
    }

    fn last_line(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().last().unwrap_or_default();
        format!("{}: {last}", self.log.display())
    }
}

impl Recipe {
    fn command(&self) -> Command {
        let mut command = match &self.folder {
            None => Command::new(&self.program),
            Some(folder) => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "--", "sh", "-c", WITH_FOLDER]);
                command.arg(folder).arg(&self.program);
                command
            }
        };
        command.args(&self.arguments);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_is_named_with_its_last_words() {
        let logs = tempfile::tempdir().unwrap();
        let recipe = Recipe {
            name: "part".into(),
            program: "sh".into(),
            arguments: vec!["-c".into(), "echo no such flag >&2; exit 1".into()],
            environment: Vec::new(),
            folder: None,
            ready: (1, "/ready"),
        };
        let mut part = Part::start(&recipe, logs.path()).unwrap();
        let error = http::block_on(async {
            part.wait_ready(Instant::now(), Duration::from_secs(90))
                .await
        })
        .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("part") && text.contains("no such flag"),
            "{text}"
        );
    }
}
