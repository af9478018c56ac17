//! Starts a child that cannot outlive the tests, and sends it signals.
#![allow(
    unsafe_code,
    reason = "what runs between fork and exec has no safe form in std"
)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{LazyLock, Mutex, mpsc};
use std::thread;

use rustix::process::{Pid, getpid, getppid, kill_process, set_parent_process_death_signal};

/// A signal that a proxy handles.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    /// SIGCONT: continue after [`Signal::Stop`].
    Continue,
    /// SIGHUP: read the configuration again.
    Hangup,
    /// SIGINT: as from the terminal.
    Interrupt,
    /// SIGSTOP: freeze.
    Stop,
    /// SIGTERM: drain and end.
    Terminate,
    /// SIGUSR1: reopen the access log.
    User1,
}

impl Signal {
    fn number(self) -> rustix::process::Signal {
        match self {
            Self::Continue => rustix::process::Signal::CONT,
            Self::Hangup => rustix::process::Signal::HUP,
            Self::Interrupt => rustix::process::Signal::INT,
            Self::Stop => rustix::process::Signal::STOP,
            Self::Terminate => rustix::process::Signal::TERM,
            Self::User1 => rustix::process::Signal::USR1,
        }
    }
}

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// Runs `command` as a child that is killed when this process ends, however it ends.
///
/// The kernel ties that to the *thread* which forks, and each test has a separate thread: so all
/// children are started by one thread that lasts as long as the process.
///
/// # Errors
///
/// If it cannot be started.
///
/// # Panics
///
/// If starting an earlier child panicked, which it does not.
pub fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: LazyLock<Mutex<mpsc::Sender<Job>>> = LazyLock::new(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (command, answer) in jobs {
                // The sender of the request waits for the result.
                let _ = answer.send(spawn_here(command));
            }
        });
        Mutex::new(sender)
    });
    let (answer, child) = mpsc::channel();
    let spawner = SPAWNER.lock().unwrap().clone();
    spawner.send((command, answer)).expect("the spawner lasts");
    child.recv().expect("the spawner answers")
}

fn spawn_here(mut command: Command) -> io::Result<Child> {
    let parent = getpid();
    let tie = move || {
        set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        if getppid() != Some(parent) {
            // The parent terminated before the line above.
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and calls only what is async-signal-safe.
    unsafe { command.pre_exec(tie) };
    command.spawn()
}

/// Sends a signal to a process that is known to be a child not yet waited for.
pub(super) fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal.number())?)
}
