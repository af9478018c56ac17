//! The errors of a cluster; each message is one line.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// An error in starting, using or stopping a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Another process holds a cluster with this name.
    #[error(
        "a cluster named {name} is already running; stop it with `cargo xtask cluster down --name {name}`"
    )]
    Busy {
        /// The name of the cluster.
        name: String,
    },

    /// A certificate could not be created.
    #[error("cannot create a certificate for {subject}: {source}")]
    Certificate {
        /// The subject of the certificate.
        subject: String,
        /// The error.
        source: rcgen::Error,
    },

    /// A command could not be started, or has failed.
    #[error("`{command}`: {detail}")]
    Command {
        /// The command, as it would be typed.
        command: String,
        /// The last line of the command's output, or its exit status.
        detail: String,
    },

    /// A program of the cluster has terminated.
    #[error("{program} exited with {status}: {detail}")]
    Ended {
        /// The program and its machine.
        program: String,
        /// The exit status of the program.
        status: String,
        /// The last line of the program's output, or where to look.
        detail: String,
    },

    /// An option is invalid.
    #[error("{field}: {reason}")]
    Invalid {
        /// The name of the option.
        field: &'static str,
        /// The valid values.
        reason: String,
    },

    /// A file or folder could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },

    /// A part that a cluster requires is missing on this machine.
    #[error("{what} is missing: {hint}")]
    Missing {
        /// The missing part.
        what: String,
        /// How to install it.
        hint: String,
    },

    /// There is no running cluster with this name.
    #[error(
        "no cluster named {name} is running; start it with `cargo xtask cluster up --name {name}`"
    )]
    NotUp {
        /// The name of the cluster.
        name: String,
    },

    /// A condition was not met in time.
    #[error("timeout after {} s, waiting until {what}; {hint}", limit.as_secs())]
    TimedOut {
        /// The condition that was waited for.
        what: String,
        /// The time for which it was waited.
        limit: Duration,
        /// Where to look for the reason.
        hint: String,
    },
}

/// Adds the path of the file to an [`io::Error`].
pub(crate) trait At<T> {
    fn at(self, path: &Path) -> Result<T, ClusterError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, ClusterError> {
        self.map_err(|source| ClusterError::File {
            path: path.to_owned(),
            source,
        })
    }
}

/// Runs a command to its end and returns its standard output.
///
/// # Errors
///
/// The command could not be started, or has failed.
pub(crate) fn run(command: &mut Command) -> Result<String, ClusterError> {
    let output = command.stdin(Stdio::null()).output();
    outcome(command, output)
}

/// Runs a command with `lines` as its standard input; returns its standard output.
///
/// # Errors
///
/// The command could not be started, or has failed.
pub(crate) fn feed(command: &mut Command, lines: &str) -> Result<String, ClusterError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    let output = command.spawn().and_then(|mut child| {
        let stdin = child.stdin.take();
        thread::scope(|scope| {
            // While the output is read: a command that prints before it has read everything would wait forever.
            let written =
                scope.spawn(|| stdin.map_or(Ok(()), |mut stdin| stdin.write_all(lines.as_bytes())));
            let output = child.wait_with_output()?;
            match written.join() {
                // A command that failed says more than the pipe that it closed.
                Ok(Err(error)) if output.status.success() => Err(error),
                Ok(_) => Ok(output),
                Err(_) => Err(io::Error::other(
                    "the thread that writes to a command panicked",
                )),
            }
        })
    });
    outcome(command, output)
}

fn outcome(command: &Command, output: io::Result<Output>) -> Result<String, ClusterError> {
    let detail = match output {
        Ok(output) if output.status.success() => {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text.lines().rev().find(|line| !line.trim().is_empty());
            // An API server's warnings contain the error, kubectl's last line only their number.
            let warnings = text.lines().filter(|line| line.starts_with("Warning: "));
            let said: Vec<_> = warnings.chain(last).collect();
            match said.is_empty() {
                true => output.status.to_string(),
                false => said.join("; "),
            }
        }
        Err(error) => error.to_string(),
    };
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    Err(ClusterError::Command {
        command: words.join(" "),
        detail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_print_while_it_reads() {
        // More than the pipes between the processes hold.
        let long = "x".repeat(1 << 20);
        assert_eq!(feed(&mut Command::new("cat"), &long).unwrap(), long);
    }

    #[test]
    fn a_command_that_ends_early_names_its_reason() {
        let mut command = Command::new("sh");
        let command = command.args(["-c", "echo no such option >&2; exit 1"]);
        let error = feed(command, &"x".repeat(1 << 20)).unwrap_err();
        assert!(error.to_string().contains("no such option"), "{error}");
    }
}
