//! Programs that the demo starts, and their processes, which are killed when their handles are dropped.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;

use super::Error;
use super::watch::Watch;

/// A program with its environment.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
    watch: Rc<Watch>,
}

impl Program {
    /// Creates the program for processes with their files in a folder.
    pub(super) fn new(path: PathBuf, folder: &Path) -> Self {
        let watch = Rc::new(Watch::over(folder));
        Self { path, watch }
    }

    /// Returns another program whose processes are in the same folder.
    pub(super) fn with_path(&self, path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            watch: Rc::clone(&self.watch),
        }
    }

    /// Returns a command without arguments.
    pub(super) fn command(&self) -> Command {
        Command::new(&self.path)
    }

    /// Starts a command of the program, with its log and its ready file in `folder`.
    pub(super) fn start(&self, mut command: Command, folder: &Path) -> Result<Process, Error> {
        let (ready_file, log_file) = (folder.join("ready.json"), folder.join("log"));
        if ready_file.exists() {
            fs::remove_file(&ready_file).map_err(Error::system("remove a ready file"))?;
        }
        let log = File::create(&log_file).map_err(Error::system("write a log"))?;
        let child = command
            .arg("--ready-file")
            .arg(&ready_file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C is handled by the demo, which stops its processes after the last response.
            .process_group(0)
            .spawn()
            .map_err(|source| Error::Start {
                program: self.path.clone(),
                source,
            })?;
        self.watch.begins(child.id());
        Ok(Process {
            child,
            ready_file,
            log_file,
            watch: Rc::clone(&self.watch),
        })
    }
}

/// A running process; it is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    ready_file: PathBuf,
    log_file: PathBuf,
    watch: Rc<Watch>,
}

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The file that the process writes once it is ready.
    pub(super) fn ready_file(&self) -> &Path {
        &self.ready_file
    }

    /// Returns the exit status, if the process has terminated.
    pub(super) fn ended(&mut self, doing: &'static str) -> Result<Option<ExitStatus>, Error> {
        self.child.try_wait().map_err(Error::system(doing))
    }

    /// Returns the last line of its log.
    pub(super) fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log_file).unwrap_or_default();
        let last = log.lines().rfind(|line| !line.trim().is_empty());
        last.unwrap_or("it printed nothing").into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has terminated by itself cannot be killed, and is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.watch.ends(self.child.id());
    }
}
