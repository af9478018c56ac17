//! Hosts for tests: network namespaces connected by a virtual link. They need root.

use std::fs::File;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, thread};

/// A network namespace; deleted on drop.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Namespace {
    /// Creates a namespace with its loopback interface up. Prints a line and returns `None` if this process
    /// may not create one.
    pub(crate) fn new() -> Option<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("maglor-test-{}-{number}", std::process::id());
        match run("ip", &["netns", "add", &name]) {
            Ok(output) if output.status.success() => {}
            Ok(output) => return skip(&String::from_utf8_lossy(&output.stderr)),
            Err(error) => return skip(&format!("ip: {error}")),
        }
        let namespace = Self { name };
        namespace.ip("link set lo up");
        Some(namespace)
    }

    /// Name for `ip netns exec`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` inside, with arguments separated by spaces.
    #[track_caller]
    pub(crate) fn ip(&self, arguments: &str) {
        let output = self.run("ip", &arguments.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "ip {arguments}: {output:?}");
    }

    /// Runs a program inside.
    #[track_caller]
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let inside = ["netns", "exec", &self.name, program];
        run("ip", &[&inside, arguments].concat()).expect("ip runs")
    }

    /// Connects two namespaces by a link: `eth0` on both sides, with these addresses (`10.0.0.1/24
    /// fd00::1/64`).
    #[track_caller]
    pub(crate) fn join(&self, addresses: &str, other: &Self, others: &str) {
        self.ip(&format!(
            "link add eth0 type veth peer name eth0 netns {}",
            other.name
        ));
        for (side, addresses) in [(self, addresses), (other, others)] {
            for address in addresses.split(' ') {
                // No wait for duplicate address detection: there are no other hosts.
                let detection = if address.contains(':') { " nodad" } else { "" };
                side.ip(&format!("address add {address} dev eth0{detection}"));
            }
            side.ip("link set eth0 up");
        }
    }

    /// Runs a function inside, in a separate thread; processes that it starts stay there.
    pub(crate) fn enter<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("the namespace is there");
        let entered = thread::scope(|scope| {
            let run = || {
                set_namespace(&file).expect("root may enter");
                inside()
            };
            scope.spawn(run).join()
        });
        entered.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run("ip", &["netns", "delete", &self.name]);
    }
}

#[allow(unsafe_code, reason = "setns(2) has no safe form in std")]
fn set_namespace(file: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // SAFETY: takes no pointers; the descriptor is open. Only the calling thread changes.
    match unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn run(program: &str, arguments: &[&str]) -> io::Result<Output> {
    Command::new(program).args(arguments).output()
}

fn skip<T>(why: &str) -> Option<T> {
    eprintln!("skipped: no network namespaces (root on Linux has them): {why}");
    None
}
