//! Processors, signals, limits and namespaces of processes. All unsafe code is here.
#![allow(
    unsafe_code,
    reason = "a hook between fork and exec, and a system call without a safe wrapper"
)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, getrlimit, kill_process_group,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{CpuSet, UnshareFlags, sched_getaffinity, sched_setaffinity, unshare_unsafe};

/// Returns the processors that this process may use, in order.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect()
}

/// Binds the calling thread, and threads and processes that it starts, to one processor.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    pin_to(&[cpu])
}

/// Binds the calling thread, and threads and processes that it starts, to some processors.
pub(crate) fn pin_to(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Starts `command` in a separate process group, bound to `cpus`; it receives `SIGTERM` when the
/// caller dies for any reason.
pub(crate) fn spawn(command: &mut Command, cpus: &[usize]) -> io::Result<Child> {
    let parent = i32::try_from(std::process::id())
        .ok()
        .and_then(Pid::from_raw);
    let cpus = cpus.to_vec();
    command.process_group(0);
    // SAFETY: between fork and exec only async-signal-safe calls are made, and no allocation.
    unsafe {
        command.pre_exec(move || {
            pin_to(&cpus)?;
            set_parent_process_death_signal(Some(Signal::TERM))?;
            if getppid() != parent {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        });
    }
    command.spawn()
}

/// Moves the calling thread, and threads and processes that it starts, into a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: only the network changes; threads still share their descriptors and memory.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// Signals the process group that [`spawn`] created; one that is gone is no error.
pub(crate) fn signal_group(leader: u32, signal: Signal) {
    let leader = i32::try_from(leader).ok().and_then(Pid::from_raw);
    let _ = leader.map(|leader| kill_process_group(leader, signal));
}

/// Raises the number of open files to the hard limit; children inherit it.
pub(crate) fn raise_file_limit() -> io::Result<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit)?;
    Ok(maximum.unwrap_or(u64::MAX))
}
