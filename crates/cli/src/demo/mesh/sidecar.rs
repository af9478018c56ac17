//! Real `maglor-proxy` processes.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::Error;
use super::process::{Process, Program};

/// The name of the program.
const PROGRAM: &str = "maglor-proxy";
const READY_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Finds the proxy: the given one, the one beside this program, or the first in `PATH`.
pub(super) fn find(passed: Option<&Path>) -> Result<PathBuf, Error> {
    match passed {
        Some(passed) => existing("--proxy", passed),
        None => beside(PROGRAM).ok_or(Error::NoProgram),
    }
}

/// Returns the path of a program that was named on the command line.
pub(super) fn existing(flag: &'static str, passed: &Path) -> Result<PathBuf, Error> {
    // Absolute, because proxies run in folders of their own.
    let found = passed.canonicalize().ok();
    let found = found.filter(|path| path.is_file());
    found.ok_or_else(|| Error::NoSuchProgram {
        flag,
        path: passed.to_owned(),
    })
}

/// Finds a program beside this one, or in `PATH`.
pub(super) fn beside(program: &str) -> Option<PathBuf> {
    let own = env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.to_owned()));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(env::split_paths(&path));
    let mut found = folders.map(|folder| folder.join(program));
    found.find(|file| file.is_file())
}

/// A running proxy; it is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Sidecar {
    process: Process,
    name: String,
}

impl Sidecar {
    /// Returns the proportional set size of the process in bytes, if the kernel reports it.
    pub(super) fn memory(&self) -> Option<f64> {
        let path = format!("/proc/{}/smaps_rollup", self.process.id());
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        let kilobytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kilobytes * 1024.0)
    }

    /// Starts the proxy with a configuration. Its files are in `folder`, to which the paths in the
    /// configuration are relative.
    pub(super) fn start(
        program: &Program,
        name: String,
        folder: &Path,
        configuration: &str,
    ) -> Result<Self, Error> {
        let file = folder.join("maglor.yaml");
        fs::write(&file, configuration).map_err(Error::system("write a configuration"))?;
        let mut command = program.command();
        command.arg("--config").arg(&file).current_dir(folder);
        let process = program.start(command, folder)?;
        Ok(Self { process, name })
    }

    /// Waits until it accepts requests.
    pub(super) async fn ready(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        while !self.process.ready_file().exists() {
            if let Some(status) = self.ended()? {
                return Err(Error::Ended {
                    name: self.name.clone(),
                    status,
                    said: self.process.last_words(),
                });
            }
            if started.elapsed() > READY_WITHIN {
                let name = self.name.clone();
                return Err(Error::NotReady(name, READY_WITHIN));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Returns the exit status of the process, if it has terminated.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.process.ended("wait for a proxy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = find(Some(Path::new("/nowhere/maglor-proxy"))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--proxy /nowhere/maglor-proxy: no such file"
        );
    }
}
