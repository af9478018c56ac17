//! Processes that the harness starts, and stops in any case.
//!
//! Each has a separate process group. Dropping its guard kills the group; if the harness itself
//! dies, the kernel sends `SIGTERM` to the leader (see [`sys::spawn`]).

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::error::{Doing, Error, Result};
use crate::sys;

const POLITE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(5);

/// A started process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Guarded {
    child: Child,
    name: String,
}

impl Guarded {
    /// Starts `command` on processor `cpu`.
    pub(crate) fn start(
        name: impl Into<String>,
        command: &mut Command,
        cpu: usize,
    ) -> Result<Self> {
        Self::start_on(name, command, &[cpu])
    }

    /// Starts `command` on some processors.
    pub(crate) fn start_on(
        name: impl Into<String>,
        command: &mut Command,
        cpus: &[usize],
    ) -> Result<Self> {
        let name = name.into();
        let child = sys::spawn(command, cpus).doing(format!("start {name}"))?;
        Ok(Self { child, name })
    }

    /// Starts a role of this same binary, with its standard streams as pipes.
    pub(crate) fn role(role: &str, arguments: &[String], cpu: usize) -> Result<Self> {
        Self::role_on(role, arguments, &[cpu])
    }

    /// Starts a role of this same binary on some processors.
    pub(crate) fn role_on(role: &str, arguments: &[String], cpus: &[usize]) -> Result<Self> {
        let own = std::env::current_exe().doing("find this binary")?;
        let mut command = Command::new(own);
        command
            .arg(role)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Self::start_on(role, &mut command, cpus)
    }

    /// Returns the leader's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM without waiting: many processes end sooner together than one after another.
    pub(crate) fn ask_to_end(&self) {
        sys::signal_group(self.child.id(), Signal::TERM);
    }

    /// Returns the exit status, if it has terminated.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .doing(format!("look after {}", self.name))
    }

    /// Waits for the line `ready` on standard output.
    pub(crate) fn wait_ready(&mut self) -> Result<()> {
        let stdout = self.child.stdout.as_mut().map(BufReader::new);
        let mut line = String::new();
        if let Some(mut stdout) = stdout {
            stdout
                .read_line(&mut line)
                .doing(format!("read from {}", self.name))?;
        }
        if line.trim() == "ready" {
            Ok(())
        } else {
            Err(Error::parse(&self.name, line))
        }
    }

    /// Waits for the end, calling `meanwhile` every few milliseconds, and returns the output.
    pub(crate) fn finish(
        &mut self,
        limit: Duration,
        mut meanwhile: impl FnMut(),
    ) -> Result<String> {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.ended()? {
                break status;
            }
            if Instant::now() > deadline {
                return Err(self.failed(format!("no end after {limit:?}")));
            }
            meanwhile();
            std::thread::sleep(POLL);
        };
        let mut text = String::new();
        if let Some(stdout) = self.child.stdout.as_mut() {
            stdout
                .read_to_string(&mut text)
                .doing(format!("read from {}", self.name))?;
        }
        if status.success() {
            Ok(text)
        } else {
            Err(self.failed(status.to_string()))
        }
    }

    fn failed(&self, detail: String) -> Error {
        Error::Command {
            command: self.name.clone(),
            detail,
        }
    }

    fn ends_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(POLL),
                Ok(Some(_)) | Err(_) => return true,
            }
        }
        false
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        sys::signal_group(self.child.id(), Signal::TERM);
        if !self.ends_within(POLITE) {
            sys::signal_group(self.child.id(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Runs a short command to its end and returns its output, including standard error.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let command = format!("{program} {}", arguments.join(" "));
    let done = Command::new(program)
        .args(arguments)
        .output()
        .doing(command.as_str())?;
    let mut text = String::from_utf8_lossy(&done.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&done.stderr));
    if done.status.success() {
        return Ok(text);
    }
    Err(Error::Command {
        command,
        detail: text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_guard_ends_the_process() {
        let cpu = sys::allowed_cpus()[0];
        let guard = Guarded::start("sleep", Command::new("sleep").arg("60"), cpu).unwrap();
        let path = format!("/proc/{}", guard.pid());
        assert!(std::path::Path::new(&path).exists());
        drop(guard);
        assert!(!std::path::Path::new(&path).exists());
    }

    #[test]
    fn failing_commands_are_errors() {
        assert!(output("false", &[]).is_err());
        assert_eq!(output("echo", &["x"]).unwrap(), "x\n");
    }
}
