//! A clean Debian below a folder, and its systemd in namespaces.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

const SUITE: &str = "bookworm";
/// With a busy machine and a slow mirror.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// A root file system that nothing was installed in but Debian's base and systemd.
pub(crate) struct Root(tempfile::TempDir);

impl Root {
    /// Unpacks the system, which is made once; or why this machine cannot have it.
    pub(crate) fn unpack() -> Result<Self, String> {
        let owner = fs::metadata("/proc/self").map(|own| own.uid());
        if !owner.is_ok_and(|owner| owner == 0) {
            return Err("root is needed".to_owned());
        }
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let archive = kept.join(format!("debian-{SUITE}.tar"));
        if !archive.exists() {
            make(&archive)?;
        }
        let folder = tempfile::tempdir_in(kept).unwrap();
        let mut tar = Command::new("tar");
        tar.args(["--numeric-owner", "-xpf"]).arg(&archive);
        run(tar.arg("-C").arg(folder.path()));
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a script without a service manager, and returns what it prints.
    pub(crate) fn chroot(&self, script: &str) -> String {
        let mut command = Command::new("chroot");
        run(shell(command.arg(self.path()), script))
    }
}

fn make(archive: &Path) -> Result<(), String> {
    let part = archive.with_extension("part.tar");
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=minbase", "--include=systemd", SUITE]);
    let made = command.arg(&part).stdin(Stdio::null()).status();
    match made {
        Ok(status) if status.success() => {
            fs::rename(&part, archive).map_err(|error| error.to_string())
        }
        Ok(status) => Err(format!("mmdebstrap {SUITE}: {status}; is there a network?")),
        Err(error) => Err(format!("mmdebstrap (apt-get install mmdebstrap): {error}")),
    }
}

/// A running systemd, with a network of its own; ended with the value.
pub(crate) struct Booted<'a> {
    unshare: Child,
    init: u32,
    cgroup: PathBuf,
    _root: &'a Root,
}

impl<'a> Booted<'a> {
    /// Boots the system; or why this machine does not allow it.
    pub(crate) fn boot(root: &'a Root) -> Result<Self, String> {
        let cgroup = cgroup().map_err(|error| format!("a new cgroup: {error}"))?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/package/boot.sh");
        let log = root.path().with_extension("log");
        let output = fs::File::create(&log).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0/cgroup.procs\"; exec \"$@\""]);
        command
            .arg(&cgroup)
            .args("unshare --fork --kill-child".split(' '));
        command.args("--mount --pid --net --uts --ipc --cgroup sh".split(' '));
        command.arg(script).arg(root.path()).stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let mut booted = Self {
            unshare: command.spawn().unwrap(),
            init: 0,
            cgroup,
            _root: root,
        };
        let deadline = Instant::now() + TIMEOUT;
        while !booted.is_running() {
            let ended = booted.unshare.try_wait().unwrap().is_some();
            if ended || Instant::now() > deadline {
                let log = fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("systemd does not boot here:\n{log}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        fs::remove_file(log).unwrap();
        Ok(booted)
    }

    fn is_running(&mut self) -> bool {
        let unshare = self.unshare.id();
        let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"));
        let Some(Ok(init)) = children.ok().map(|list| list.trim().parse()) else {
            return false;
        };
        self.init = init;
        let state = self.inside("systemctl is-system-running").output();
        state.is_ok_and(|state| state.stdout == b"running\n")
    }

    /// Its network, for setns(2).
    pub(crate) fn network(&self) -> fs::File {
        fs::File::open(format!("/proc/{}/ns/net", self.init)).unwrap()
    }

    /// A script inside.
    pub(crate) fn inside(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.init.to_string()]);
        shell(&mut command, script);
        command
    }

    /// Runs a script inside, and returns what it prints.
    pub(crate) fn run(&self, script: &str) -> String {
        run(&mut self.inside(script))
    }
}

impl Drop for Booted<'_> {
    fn drop(&mut self) {
        // The first process of a PID namespace takes all others with it.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        let deadline = Instant::now() + Duration::from_secs(10);
        while remove_cgroup(&self.cgroup).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A cgroup below that of the machine, as the root of the system's.
fn cgroup() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let mut mounts = mounts.lines().map(|line| line.split(' '));
    let mount = mounts.find_map(|mut mount| {
        let place = mount.nth(1)?;
        (mount.next() == Some("cgroup2")).then(|| place.to_owned())
    });
    let mount = mount.ok_or(io::ErrorKind::NotFound)?;
    let cgroup = Path::new(&mount).join(format!("package-test-{}", std::process::id()));
    fs::create_dir(&cgroup)?;
    Ok(cgroup)
}

fn remove_cgroup(folder: &Path) -> io::Result<()> {
    for inner in fs::read_dir(folder)? {
        let inner = inner?.path();
        if inner.is_dir() {
            remove_cgroup(&inner)?;
        }
    }
    fs::remove_dir(folder)
}

fn shell<'a>(command: &'a mut Command, script: &str) -> &'a mut Command {
    command.args(["sh", "-ec", script]).env_clear();
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
}

/// What a command prints; it has to succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let script = command.get_args().last().unwrap_or(OsStr::new(""));
    assert!(
        output.status.success(),
        "{}: {}\n{printed}{errors}",
        script.display(),
        output.status
    );
    printed
}
