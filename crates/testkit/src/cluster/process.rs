//! A program of the cluster, running in a machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::cluster::error::{At as _, ClusterError};

/// A running program, which ends with its machine.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    log: PathBuf,
    command: Command,
    child: Child,
}

impl Process {
    /// Returns the name of a program in a machine, by which it can be found.
    pub(crate) fn name(program: &str, machine: &str) -> String {
        format!("{program} of {machine}")
    }

    /// Returns whether the program has this name.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name == name
    }

    pub(crate) fn start(
        mut command: Command,
        name: &str,
        log: &Path,
    ) -> Result<Self, ClusterError> {
        let output = File::create(log).at(log)?;
        let errors = output.try_clone().at(log)?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = spawn(&mut command, name)?;
        Ok(Self {
            name: name.to_owned(),
            log: log.to_owned(),
            command,
            child,
        })
    }

    /// Restarts the program; its log is continued.
    pub(crate) fn restart(&mut self) -> Result<(), ClusterError> {
        self.kill();
        self.child = spawn(&mut self.command, &self.name)?;
        Ok(())
    }

    /// Returns an error if the program has terminated.
    pub(crate) fn check(&mut self) -> Result<(), ClusterError> {
        let Ok(Some(status)) = self.child.try_wait() else {
            return Ok(());
        };
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let detail = text.lines().rev().find(|line| !line.trim().is_empty());
        Err(ClusterError::Ended {
            program: self.name.clone(),
            status: status.to_string(),
            detail: detail.unwrap_or("the log is empty").to_owned(),
        })
    }

    /// Kills the program, as a crash would.
    pub(crate) fn kill(&mut self) {
        // `nsenter` forwards nothing, and its child outlives it: the program is its only child.
        let nsenter = self.child.id();
        let children = format!("/proc/{nsenter}/task/{nsenter}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        for child in children
            .split_whitespace()
            .filter_map(|child| child.parse().ok())
        {
            if let Some(pid) = rustix::process::Pid::from_raw(child) {
                // It may have ended in the meantime.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

fn spawn(command: &mut Command, name: &str) -> Result<Child, ClusterError> {
    command.spawn().map_err(|error| ClusterError::Command {
        command: name.to_owned(),
        detail: error.to_string(),
    })
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
