//! Starts a proxy.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::log::Log;
use super::{Proxy, Ready, spawn};
use crate::TIMEOUT;

/// The builder of a proxy process.
///
/// ```no_run
/// # fn main() {
/// # let binary = "maglor-proxy";
/// use maglor_testkit::ProxyBuilder;
///
/// // In a test of the proxy: `let binary = env!("CARGO_BIN_EXE_maglor-proxy");`
/// let proxy = ProxyBuilder::new(binary)
///     .config("listeners: …")
///     .start();
/// let response = maglor_testkit::RawHttp1::connect(proxy.listener("web")).get("/");
/// assert_eq!(response.status, 200);
/// assert!(proxy.terminate().success());
/// # }
/// ```
#[derive(Debug)]
pub struct ProxyBuilder {
    binary: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    config: Option<String>,
    ready_timeout: Duration,
}

impl ProxyBuilder {
    /// Creates a builder with this binary.
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            args: Vec::new(),
            env: Vec::new(),
            config: None,
            ready_timeout: TIMEOUT,
        }
    }

    /// Adds `--config FILE` with this text in the file.
    #[must_use]
    pub fn config(mut self, text: impl Into<String>) -> Self {
        self.config = Some(text.into());
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the proxy's environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Starts the proxy and waits until it is ready.
    ///
    /// # Panics
    ///
    /// If it does not become ready; the message has its standard error.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> Proxy {
        match self.try_start() {
            Ok(proxy) => proxy,
            Err(failed) => panic!("{failed}"),
        }
    }

    /// Starts the proxy and waits until it is ready or has terminated.
    ///
    /// # Errors
    ///
    /// [`NotReady`] if it terminates, or is not ready in time.
    ///
    /// # Panics
    ///
    /// If the binary cannot be run at all.
    pub fn try_start(self) -> Result<Proxy, NotReady> {
        let dir = TempDir::with_prefix("maglor-proxy-").expect("a temporary directory");
        let ready_file = dir.path().join("ready.json");
        let mut command = Command::new(&self.binary);
        if let Some(config) = &self.config {
            let file = dir.path().join("config.yaml");
            fs::write(&file, config).expect("the configuration's file");
            command.arg("--config").arg(file);
        }
        command
            .args(&self.args)
            .arg("--ready-file")
            .arg(&ready_file)
            .envs(self.env)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = spawn(command)
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.binary.display()));
        let stderr = Log::collect(child.stderr.take().expect("standard error is piped"));
        let mut proxy = Proxy {
            child,
            dir,
            ready: Ready::default(),
            ready_after: Duration::ZERO,
            stderr,
        };
        proxy.ready = proxy.wait_ready(&ready_file, started + self.ready_timeout)?;
        proxy.ready_after = started.elapsed();
        Ok(proxy)
    }
}

/// The reason why a proxy did not become ready.
#[derive(Clone, Debug)]
pub struct NotReady {
    /// Its exit status; `None` if it was still running and was killed.
    pub status: Option<ExitStatus>,
    /// Its standard error.
    pub stderr: String,
}

impl std::fmt::Display for NotReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status {
            Some(status) => write!(f, "the proxy exited ({status}) before it was ready")?,
            None => write!(f, "the proxy was not ready in time")?,
        }
        write!(f, "; it wrote:\n{}", self.stderr)
    }
}

impl std::error::Error for NotReady {}
