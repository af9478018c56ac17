//! The real proxy as a child process.
//!
//! The proxy is started with `--ready-file PATH` and writes its addresses into this file once it is
//! ready: `{"admin":"127.0.0.1:1234","listeners":{"web":"127.0.0.1:2345"}}`. So every listener of a
//! test requests port 0.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};
use std::{fs, thread};

use tempfile::TempDir;

use crate::raw::{RawHttp1, RawResponse};
use crate::{TIMEOUT, wait};

mod builder;
mod log;
mod spawn;

pub use builder::{NotReady, ProxyBuilder};
pub use spawn::{Signal, spawn};

use log::Log;

/// The addresses of a proxy.
#[derive(Clone, Debug, Default)]
struct Ready {
    admin: Option<SocketAddr>,
    listeners: BTreeMap<String, SocketAddr>,
}

impl Ready {
    /// Returns the file's contents; `None` while the file does not exist or is incomplete.
    fn read(file: &Path) -> Option<Self> {
        let text = fs::read(file).ok()?;
        let json: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let address = |value: &serde_json::Value| value.as_str()?.parse().ok();
        let listeners = json.get("listeners")?.as_object()?;
        Some(Self {
            admin: json.get("admin").and_then(address),
            listeners: listeners
                .iter()
                // A listener on a Unix socket has no address chosen by the system.
                .filter(|(_, value)| !value.as_str().is_some_and(|text| text.starts_with("unix:")))
                .map(|(name, value)| Some((name.clone(), address(value)?)))
                .collect::<Option<_>>()?,
        })
    }
}

/// A running proxy. Dropping it kills it; if the test is failing, its log is printed.
#[derive(Debug)]
pub struct Proxy {
    child: Child,
    dir: TempDir,
    ready: Ready,
    ready_after: Duration,
    stderr: Log,
}

impl Proxy {
    /// Returns the address of a listener.
    ///
    /// # Panics
    ///
    /// If there is none of this name; the message lists the existing ones.
    #[must_use]
    #[track_caller]
    pub fn listener(&self, name: &str) -> SocketAddr {
        match self.ready.listeners.get(name) {
            Some(&address) => address,
            None => panic!("no listener {name}, only {:?}", self.ready.listeners),
        }
    }

    /// Returns the addresses of all listeners by name.
    #[must_use]
    pub fn listeners(&self) -> &BTreeMap<String, SocketAddr> {
        &self.ready.listeners
    }

    /// Returns the address of the admin port.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    #[track_caller]
    pub fn admin(&self) -> SocketAddr {
        self.ready.admin.expect("the proxy has an admin port")
    }

    /// Requests a page of the admin port.
    #[must_use]
    #[track_caller]
    pub fn admin_get(&self, path: &str) -> RawResponse {
        RawHttp1::connect(self.admin()).get_local(path)
    }

    /// Returns the sum of all samples of a metric whose line contains each of `labels`
    /// (`cluster="web"`); zero if there is none.
    #[must_use]
    #[track_caller]
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let response = self.admin_get("/metrics");
        assert_eq!(response.status, 200, "/metrics");
        let lines = response.text().lines().filter(|line| {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            line[..end] == *name && labels.iter().all(|label| line.contains(label))
        });
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Waits until [`Proxy::metric`] has a value: a request is counted after its last byte was sent.
    ///
    /// # Panics
    ///
    /// If it has another value for [`TIMEOUT`].
    #[track_caller]
    pub fn expect_metric(&self, name: &str, labels: &[&str], value: f64) {
        let what = format!("{name}{labels:?} is {value}");
        wait::eventually(TIMEOUT, &what, || self.metric(name, labels) == value);
    }

    /// Returns the time from the start of the process until it was ready.
    #[must_use]
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns a directory for files of the test, removed with this value.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the file that was passed with `--config`.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("config.yaml")
    }

    /// Replaces the configuration's file in one step, as an editor does.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn replace_config(&self, text: &str) {
        let new = self.dir.path().join("config.yaml.new");
        fs::write(&new, text).expect("a file beside the configuration");
        fs::rename(new, self.config_file()).expect("a file in place of the configuration");
    }

    /// Returns the proxy's standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until the proxy has written `text` to standard error.
    ///
    /// # Panics
    ///
    /// If it does not in time.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        let what = format!("the proxy logs {text:?}");
        wait::eventually(TIMEOUT, &what, || self.stderr().contains(text));
    }

    /// Returns the resident memory in bytes.
    ///
    /// # Panics
    ///
    /// If the process is gone.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// Returns the anonymous resident memory in bytes: the allocations of the process. Unlike
    /// [`Proxy::resident_bytes`] it does not depend on the pages of code that happen to be mapped.
    ///
    /// # Panics
    ///
    /// If the process is gone.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.status_bytes("RssAnon:")
    }

    fn status_bytes(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.expect("a process has memory") * 1024
    }

    /// Returns the number of open file descriptors.
    ///
    /// # Panics
    ///
    /// If the process is gone.
    #[must_use]
    pub fn open_files(&self) -> usize {
        let files = fs::read_dir(format!("/proc/{}/fd", self.pid()));
        files.expect("the process runs").count()
    }

    /// Sends a signal.
    ///
    /// # Panics
    ///
    /// If the process is gone.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        // The child has not been waited for, so that its id cannot be another process's.
        spawn::signal(self.pid(), signal).expect("the process runs");
        if signal == Signal::Stop {
            // A thread on another processor may run on for a moment.
            let tasks = format!("/proc/{}/task", self.pid());
            wait::eventually(TIMEOUT, "every thread has stopped", || all_stopped(&tasks));
        }
    }

    /// Stops the proxy with SIGTERM and waits for it to drain.
    ///
    /// # Panics
    ///
    /// If it has not terminated within twice [`TIMEOUT`].
    #[track_caller]
    pub fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::Terminate);
        self.wait_exit(TIMEOUT * 2)
    }

    /// Waits until the proxy has terminated by itself.
    ///
    /// # Panics
    ///
    /// If it does not in time.
    #[track_caller]
    pub fn wait_exit(&mut self, timeout: Duration) -> ExitStatus {
        let child = &mut self.child;
        wait::until(timeout, "the proxy ends", || {
            child.try_wait().expect("it is our child")
        })
    }

    /// Kills the proxy with SIGKILL.
    pub fn kill(self) {
        drop(self);
    }

    fn wait_ready(&mut self, file: &Path, deadline: Instant) -> Result<Ready, NotReady> {
        loop {
            if let Some(ready) = Ready::read(file) {
                return Ok(ready);
            }
            let status = self.child.try_wait().expect("it is our child");
            if status.is_some() || Instant::now() >= deadline {
                return Err(self.not_ready(status));
            }
            thread::sleep(Duration::from_micros(500));
        }
    }

    fn not_ready(&mut self, status: Option<ExitStatus>) -> NotReady {
        self.end();
        NotReady {
            status,
            stderr: self.stderr(),
        }
    }

    /// Kills the process if it runs, and collects the rest of its log.
    fn end(&mut self) {
        // Both fail only if it has terminated and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.stderr.finish();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let ended = self.child.try_wait().ok().flatten();
        self.end();
        if thread::panicking() {
            let how = match ended {
                Some(status) if status.signal().is_some() || !status.success() => {
                    format!(", which had ended by itself ({status})")
                }
                _ => String::new(),
            };
            eprintln!("--- log of the proxy{how}:\n{}---", self.stderr());
        }
    }
}

/// Returns whether the state of every thread is `T`, as in proc_pid_stat(5).
fn all_stopped(tasks: &str) -> bool {
    let Ok(tasks) = fs::read_dir(tasks) else {
        return false;
    };
    tasks.flatten().all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The preceding name may contain any characters, also parentheses.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}
