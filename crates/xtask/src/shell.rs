//! Runs other programs.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Returns the folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Returns the folder that cargo builds into.
pub(crate) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(target)
}

/// A command that runs in the workspace's folder and is printed as on a command line.
#[derive(Debug)]
pub(crate) struct Cargo {
    command: Command,
    name: String,
}

impl Cargo {
    /// Creates a command with a subcommand of the running cargo.
    pub(crate) fn new(subcommand: &str) -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Self::program(cargo, "cargo").arg(subcommand)
    }

    /// Creates a command with a subcommand of cargo-fuzz, which needs the nightly compiler.
    pub(crate) fn fuzz(subcommand: &str) -> Self {
        let words = ["run", "nightly", "cargo", "fuzz", subcommand];
        Self::program("rustup", "rustup").args(words)
    }

    /// Creates a command with any program, under the name that it is printed with.
    pub(crate) fn program(program: impl AsRef<OsStr>, name: &str) -> Self {
        let mut command = Command::new(program);
        command.current_dir(root());
        Self {
            command,
            name: name.into(),
        }
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it in `folder` instead of the workspace's.
    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Kills it, with all processes that it has started, after `limit`; on CI, which is unattended.
    ///
    /// Elsewhere Ctrl-C has to reach it, which it would not in a separate process group.
    pub(crate) fn at_most(mut self, limit: Duration) -> Self {
        if std::env::var_os("CI").is_none() {
            return self;
        }
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", &limit.as_secs().to_string()]);
        command
            .arg(self.command.get_program())
            .args(self.command.get_args());
        command.current_dir(root());
        for (name, value) in self.command.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        self.command = command;
        self.name = "timeout".into();
        self
    }

    /// Executes it in place of this process, so that signals reach the right one.
    pub(crate) fn become_it(mut self) -> ExitCode {
        let error = self.command.exec();
        eprintln!("error: {self}: {error}");
        ExitCode::FAILURE
    }

    /// Returns whether it ran and succeeded.
    pub(crate) fn succeeds(mut self) -> bool {
        match self.command.stdin(Stdio::null()).status() {
            Ok(status) => status.success(),
            Err(error) => {
                eprintln!("error: {self}: {error}");
                false
            }
        }
    }

    /// Returns whether it succeeds; `line` is called with each line of its standard output, and the standard error is
    /// shown.
    pub(crate) fn succeeds_printing(mut self, mut line: impl FnMut(&str)) -> io::Result<bool> {
        let command = self.command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(stdout) = child.stdout.take() {
            for text in BufReader::new(stdout).lines() {
                line(&text?);
            }
        }
        Ok(child.wait()?.success())
    }

    /// Returns its status; `line` is called with each line of its standard output and of its standard error.
    ///
    /// Processes that it leaves running are not waited for.
    pub(crate) fn status_printing_both(
        mut self,
        mut line: impl FnMut(&str),
    ) -> io::Result<ExitStatus> {
        let (reader, writer) = io::pipe()?;
        let command = self.command.stdin(Stdio::null());
        let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
        // It holds our ends of the pipe, which would never end.
        drop(self);
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(reader).split(b'\n').map_while(Result::ok);
            lines.all(|bytes| sender.send(bytes).is_ok())
        });
        loop {
            match lines.recv_timeout(Duration::from_secs(1)) {
                Ok(bytes) => line(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_none() => {}
                Err(_) => return child.wait(),
            }
        }
    }

    /// Runs it in a process group of its own and returns its output, of both streams.
    ///
    /// Its group is killed when it ends, after `limit`, and when `interrupted` becomes true, so that nothing that it
    /// started is left.
    pub(crate) fn output_within(
        mut self,
        limit: Duration,
        interrupted: &AtomicBool,
    ) -> io::Result<Ended> {
        let (mut reader, writer) = io::pipe()?;
        let command = self.command.stdin(Stdio::null()).process_group(0);
        let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
        // It holds our ends of the pipe, which would never end.
        drop(self);
        let output = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = reader.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let started = Instant::now();
        let ended = loop {
            // It is not reaped yet, so that the number of its group is not given to another one.
            if has_ended(&child)? {
                break true;
            }
            if interrupted.load(Ordering::Relaxed) || started.elapsed() > limit {
                break false;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        // Fails if the group has no member but the ended program.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let status = child.wait()?;
        let output = output.join().unwrap_or_default();
        Ok(match ended {
            true => Ended::Exited { status, output },
            false if interrupted.load(Ordering::Relaxed) => Ended::Interrupted,
            false => Ended::Killed { output },
        })
    }

    /// Returns whether it succeeds, without showing its output.
    pub(crate) fn succeeds_quietly(mut self) -> bool {
        let command = self.command.stdin(Stdio::null());
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// How a program with a time limit ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Exited {
        status: ExitStatus,
        output: String,
    },
    /// By the time limit.
    Killed {
        output: String,
    },
    Interrupted,
}

fn has_ended(child: &Child) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(Pid::from_child(child)), options)?;
    Ok(status.is_some())
}

impl fmt::Display for Cargo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for argument in self.command.get_args() {
            write!(f, " {}", argument.to_string_lossy())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_are_read_until_the_program_ends() {
        let script = "echo out; echo error >&2; sleep 40 & exit 3";
        let mut lines = Vec::new();
        let started = Instant::now();
        let status = Cargo::program("sh", "sh")
            .args(["-c", script])
            .status_printing_both(|line| lines.push(line.to_owned()));
        assert_eq!(status.unwrap().code(), Some(3));
        lines.sort();
        assert_eq!(lines, ["error", "out"]);
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "what is left is not waited for"
        );
    }
}
