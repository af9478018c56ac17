//! A machine: Linux namespaces that exist as long as a value does.
//!
//! A machine has its own processes, mounts, network, host name and IPC. Its first process waits for the end of a pipe
//! that this process holds. When the value is dropped, or this process dies for any reason, the kernel kills every
//! process in the machine and removes its mounts, interfaces and containers. So a signal, an error or a crash leaves
//! nothing behind, except for what [`crate::cluster::cgroup`] and the state folder remove.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::error::{At as _, ClusterError, feed, run};
use crate::cluster::process::Process;

/// The path of a machine's folder inside the machine. It is short, because paths of Unix sockets have at most 107
/// bytes.
pub(crate) const HOME: &str = "/run/maglor";

/// The folders of the host that are replaced by empty ones in a machine, because Kubernetes writes to them.
const EMPTY: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// The timeout for `unshare` to create the first process.
const START: Duration = Duration::from_secs(10);

/// A machine, which ends when the value is dropped.
#[derive(Debug)]
pub struct Machine {
    name: String,
    folder: PathBuf,
    init: u32,
    // Dropped before the child is waited for: the first process waits for its end.
    pipe: Option<ChildStdin>,
    unshare: Child,
}

impl Machine {
    /// Starts a machine without any network but its loopback interface. `folder` becomes its `/run/maglor`.
    ///
    /// # Errors
    ///
    /// The process does not run as root, or the kernel does not support such namespaces.
    pub(crate) fn start(name: &str, folder: &Path) -> Result<Self, ClusterError> {
        fs::create_dir_all(folder).at(folder)?;
        // A shell, not `cat` alone, because the first process has to reap orphans.
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--net", "--uts", "--ipc", "--pid"]);
        unshare.args([
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            "cat; :",
        ]);
        unshare.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = unshare.spawn().map_err(|error| ClusterError::Command {
            command: "unshare".into(),
            detail: error.to_string(),
        })?;
        let pipe = child.stdin.take();
        let mut machine = Self {
            name: name.to_owned(),
            folder: folder.to_owned(),
            init: 0,
            pipe,
            unshare: child,
        };
        machine.init = machine.wait_for_init()?;
        machine.prepare()?;
        Ok(machine)
    }

    /// Returns the name of the machine, which is also its host name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process id of the machine's first process, as seen from the host.
    #[must_use]
    pub fn init(&self) -> u32 {
        self.init
    }

    /// Returns a command that runs in the machine, with the files of the host except for the machine's own folders.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        enter(self.init, program)
    }

    /// Returns a command of the host that runs in the network of the machine.
    pub(crate) fn network_command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.network().display()))
            .arg(program);
        command
    }

    /// Returns the file of the machine's network namespace.
    pub(crate) fn network(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.init).into()
    }

    /// Executes lines of `ip -batch` in the network of the machine, with the processes and files of the host.
    pub(crate) fn ip(&self, lines: &str) -> Result<(), ClusterError> {
        feed(self.network_command("ip").args(["-batch", "-"]), lines).map(drop)
    }

    /// Returns the path of a file in the machine's folder, on the host.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file in the machine's folder, and returns its path inside the machine.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<String, ClusterError> {
        let path = self.file(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).at(parent)?;
        }
        fs::write(&path, text).at(&path)?;
        Ok(format!("{HOME}/{name}"))
    }

    /// Starts a program of the cluster in the machine, with its output in a log that is named after it.
    pub(crate) fn spawn(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Process, ClusterError> {
        let mut command = self.command(&program.to_string_lossy());
        command.args(arguments);
        let program = program.file_name().unwrap_or_default().to_string_lossy();
        let log = self.file(&format!("{program}.log"));
        Process::start(command, &Process::name(&program, &self.name), &log)
    }

    fn wait_for_init(&mut self) -> Result<u32, ClusterError> {
        let parent = self.unshare.id();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let own = fs::read_link("/proc/self/ns/mnt").at(Path::new("/proc/self/ns/mnt"))?;
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.unshare.try_wait() {
                return Err(ClusterError::Command {
                    command: "unshare --mount --net --uts --ipc --pid".into(),
                    detail: format!("{status}; unshare needs root"),
                });
            }
            let text = fs::read_to_string(&children).unwrap_or_default();
            let init = text.split_whitespace().next();
            if let Some(init) = init.and_then(|init| init.parse::<u32>().ok()) {
                // `unshare` creates the namespaces before it forks; a process that still has the
                // host's mounts must never be entered, since mounts would then be made on the host.
                let theirs = fs::read_link(format!("/proc/{init}/ns/mnt"));
                let shell = fs::read_to_string(format!("/proc/{init}/comm"));
                if theirs.is_ok_and(|theirs| theirs != own)
                    && shell.is_ok_and(|name| name.trim() == "sh")
                {
                    return Ok(init);
                }
            }
            thread::sleep(Duration::from_millis(2));
        }
        Err(ClusterError::TimedOut {
            what: format!("{} has a first process", self.name),
            limit: START,
            hint: "check that unshare of util-linux is installed".into(),
        })
    }

    /// Replaces folders of the host by those of the machine, and sets up its host name and loopback interface.
    fn prepare(&self) -> Result<(), ClusterError> {
        for folder in EMPTY {
            run(self.command("mount").args(["-t", "tmpfs", "tmpfs", folder]))?;
        }
        run(self.command("mkdir").args([HOME, "/run/lock"]))?;
        run(self
            .command("mount")
            .arg("--bind")
            .arg(&self.folder)
            .arg(HOME))?;
        // Mounts of containerd have to be visible in the containers' mount namespaces, but not
        // outside.
        run(self.command("mount").args(["--make-rshared", "/"]))?;
        run(self.command("hostname").arg(&self.name))?;
        self.ip("link set lo up\n")
    }
}

/// Returns a command that runs in all namespaces of a process.
pub(crate) fn enter(init: u32, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &init.to_string()]);
    command.args(["--mount", "--net", "--uts", "--ipc", "--pid", "--", program]);
    command
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // The kernel has ended everything in it once `unshare` has seen its child end.
        let _ = self.unshare.wait();
    }
}
