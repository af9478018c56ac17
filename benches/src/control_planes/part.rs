//! A program of a control plane, or the proxy of a pod, as a process in the network of the API server.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::child::Guarded;
use crate::error::{Doing, Error, Result};
use crate::procfs::{self, CpuTime, Memory, Share};
use crate::{http, sys};

const POLL: Duration = Duration::from_millis(20);

/// Shows its folder to a program as `/run/linkerd`, in mounts of its own: Linkerd's programs read files at fixed paths.
const WITH_FOLDER: &str = r#"mount -t tmpfs tmpfs /run && mkdir /run/linkerd && mount --bind "$0" /run/linkerd && exec "$@""#;

/// How to start a program.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    /// The folder that becomes `/run/linkerd`.
    pub(super) folder: Option<PathBuf>,
    /// The port of its `/ready`, over HTTP.
    pub(super) ready: u16,
}

/// A running program, which is ended when this is dropped.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    child: Guarded,
    ready: SocketAddr,
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
    /// Starts a program, with its log in a folder.
    pub(super) fn start(recipe: &Recipe, logs: &Path) -> Result<Self> {
        let mut command = match &recipe.folder {
            None => Command::new(&recipe.program),
            Some(folder) => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "--", "sh", "-c", WITH_FOLDER]);
                command.arg(folder).arg(&recipe.program);
                command
            }
        };
        command
            .args(&recipe.arguments)
            .envs(recipe.environment.iter().map(|(name, value)| (name, value)));
        let ready = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), recipe.ready);
        let log = logs.join(format!("{}.log", recipe.name));
        Self::run(&recipe.name, &mut command, ready, log)
    }

    /// Starts a command, which serves `/ready` at this address and writes to this log.
    pub(super) fn run(
        name: &str,
        command: &mut Command,
        ready: SocketAddr,
        log: PathBuf,
    ) -> Result<Self> {
        let file = fs::File::create(&log).doing(format!("make {}", log.display()))?;
        let errors = file.try_clone().doing(format!("open {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        Ok(Self {
            child: Guarded::start_on(name, command, &sys::allowed_cpus())?,
            name: name.to_owned(),
            ready,
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
            let answer = http::text(self.ready, "GET", "/ready", String::new()).await;
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
            ready: 1,
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
