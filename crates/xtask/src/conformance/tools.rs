//! Third-party programs: built or installed once into a cache folder, and run with a time limit.
//!
//! The cache is `$XDG_CACHE_HOME/maglor` (`~/.cache/maglor`); the name of a folder in it contains
//! the version, so that a new one is fetched when it changes here.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context as _, bail, ensure};

use crate::shell;

/// Returns the folder of the workspace's `Cargo.toml`.
pub(super) fn workspace() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here
        .ancestors()
        .nth(2)
        .context("crates/xtask has no workspace folder")?;
    Ok(root.to_owned())
}

/// Builds a program of the workspace nearly as it is released.
pub(super) fn build(root: &Path, program: &str) -> anyhow::Result<PathBuf> {
    println!("building {program}");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--profile", "quick", "-p", program])
        .current_dir(root)
        .status()
        .context("running cargo")?;
    ensure!(status.success(), "cargo build: {status}");
    Ok(shell::target().join("quick").join(program))
}

/// Returns a folder of the cache.
pub(super) fn cache(name: &str) -> anyhow::Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => Path::new(&env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    let folder = base.join("maglor").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

/// Builds a package of a Go module in `crates/xtask/conformance`; `go` caches what has not changed.
pub(super) fn go_build(
    root: &Path,
    module: &str,
    package: &str,
    binary: &Path,
) -> anyhow::Result<()> {
    let mut go = Command::new("go");
    go.args(["build", "-trimpath", "-o"])
        .arg(binary)
        .arg(package)
        .current_dir(root.join("crates/xtask/conformance").join(module));
    let output = run(go, Duration::from_secs(600))
        .context("running go; check that Go 1.26 or newer is installed")?;
    ensure!(output.success(), "go build {package}: {}", output.text);
    Ok(())
}

/// The exit status of a program and its output, both streams together.
#[derive(Debug)]
pub(super) struct Output {
    status: Option<ExitStatus>,
    pub(super) text: String,
}

impl Output {
    /// Returns whether it terminated by itself, successfully.
    pub(super) fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns the last line that is not empty.
    pub(super) fn last_line(&self) -> &str {
        let lines = self.text.lines().rev();
        lines
            .map(str::trim)
            .find(|line| !line.is_empty())
            .unwrap_or("no output")
    }

    /// Describes how it terminated.
    pub(super) fn ended(&self) -> String {
        self.status.map_or_else(
            || "killed after the time limit".to_owned(),
            |status| status.to_string(),
        )
    }
}

/// Runs a program to its end; kills it at the time limit.
pub(super) fn run(command: Command, limit: Duration) -> anyhow::Result<Output> {
    let mut running = Running::start(command)?;
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = running.child.try_wait()? {
            break Some(status);
        }
        if Instant::now() >= deadline {
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    running.kill();
    Ok(Output {
        status,
        text: running.text()?,
    })
}

/// A program in the background; killed on drop.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    output: File,
}

impl Running {
    /// Starts a program that ends with this process.
    pub(super) fn start(mut command: Command) -> anyhow::Result<Self> {
        let name = command.get_program().to_owned();
        let output = tempfile::tempfile()?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?);
        let child = maglor_testkit::process::spawn(command);
        let child = child.with_context(|| format!("running {}", name.display()))?;
        Ok(Self { child, output })
    }

    /// Returns the output of the process so far.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let length = usize::try_from(self.output.metadata()?.len())?;
        let mut bytes = vec![0; length];
        // Reads by position: the child shares this file's own.
        self.output.read_exact_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits for its first line of output.
    pub(super) fn first_line(&mut self, limit: Duration) -> anyhow::Result<String> {
        let deadline = Instant::now() + limit;
        loop {
            let text = self.text()?;
            if let Some((line, _)) = text.split_once('\n') {
                return Ok(line.to_owned());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the program ended ({status}) before its first line: {text}");
            }
            ensure!(
                Instant::now() < deadline,
                "the program printed no line in time"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&mut self) {
        // Both fail only if it has terminated and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
