//! Calls to the operating system that the standard library lacks. All unsafe code is here.
#![allow(
    unsafe_code,
    reason = "thin wrappers over libc, each with its argument"
)]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use tokio::io::unix::AsyncFd;

/// Returns the processors that this process may use, in order.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: an all-zero cpu_set_t is valid, and the kernel writes at most its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        set
    };
    let size = usize::try_from(libc::CPU_SETSIZE).unwrap_or(1024);
    // SAFETY: `cpu` is below CPU_SETSIZE.
    (0..size)
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
        .collect()
}

/// Binds the calling thread, and threads and processes that it starts, to one processor.
///
/// # Errors
/// The system refused.
pub fn pin(cpu: usize) -> io::Result<()> {
    pin_to(&[cpu])
}

/// Binds the calling thread, and threads and processes that it starts, to some processors.
///
/// # Errors
/// The system refused.
pub fn pin_to(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: as above; `cpus` come from `allowed_cpus`.
    let code = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    check(code)
}

/// Starts `command` in a separate process group, bound to `cpus`; it receives `SIGTERM` when the
/// caller dies for any reason.
///
/// # Errors
/// The program cannot be started.
pub fn spawn(command: &mut Command, cpus: &[usize]) -> io::Result<Child> {
    let parent = std::process::id();
    let cpus = cpus.to_vec();
    command.process_group(0);
    // SAFETY: between fork and exec only async-signal-safe calls are made, and no allocation.
    unsafe {
        command.pre_exec(move || {
            pin_to(&cpus)?;
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM))?;
            if libc::getppid().cast_unsigned() != parent {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        });
    }
    command.spawn()
}

/// The signals that end a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// `SIGKILL`: at once.
    Kill,
    /// `SIGTERM`: gracefully.
    Terminate,
}

/// Signals the process group that [`spawn`] created.
pub fn signal_group(leader: u32, signal: Signal) {
    let Ok(leader) = i32::try_from(leader) else {
        return;
    };
    let number = match signal {
        Signal::Kill => libc::SIGKILL,
        Signal::Terminate => libc::SIGTERM,
    };
    // SAFETY: no memory is involved; a group that is gone results in ESRCH, which is intended.
    unsafe {
        libc::kill(-leader, number);
    }
}

/// Raises the number of open files to the hard limit; children inherit it.
///
/// # Errors
/// The system refused.
pub fn raise_file_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` lives through both calls.
    unsafe {
        check(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit))?;
        limit.rlim_cur = limit.rlim_max;
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit))?;
    }
    Ok(limit.rlim_cur)
}

/// Returns the clock ticks per second, the unit of `/proc/PID/stat`.
pub fn clock_ticks() -> u64 {
    // SAFETY: no memory is involved.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100).max(1)
}

/// A periodic timer of nanosecond resolution; that of tokio has one millisecond.
#[derive(Debug)]
pub struct Ticker {
    file: AsyncFd<OwnedFd>,
}

impl Ticker {
    /// Starts the timer now; the first tick is after one `period`.
    ///
    /// # Errors
    /// The system refused, or there is no runtime.
    pub fn new(period: Duration) -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: the descriptor is checked, fresh, and has no other owner.
        let file = unsafe {
            let raw = libc::timerfd_create(libc::CLOCK_MONOTONIC, flags);
            check(raw)?;
            OwnedFd::from_raw_fd(raw)
        };
        let time = libc::timespec {
            tv_sec: period.as_secs().cast_signed(),
            tv_nsec: i64::from(period.subsec_nanos()),
        };
        let setting = libc::itimerspec {
            it_interval: time,
            it_value: time,
        };
        // SAFETY: `setting` lives through the call; a null old value is allowed.
        let code = unsafe {
            libc::timerfd_settime(
                file.as_raw_fd(),
                0,
                &raw const setting,
                std::ptr::null_mut(),
            )
        };
        check(code)?;
        // SAFETY: an `OwnedFd` keeps one descriptor open for as long as it lives.
        let file = unsafe { AsyncFd::register(file) }?;
        Ok(Self { file })
    }

    /// Waits for the next tick and returns how many have passed since the last call.
    ///
    /// # Errors
    /// The timer cannot be read.
    pub async fn tick(&self) -> io::Result<u64> {
        loop {
            let mut ready = self.file.readable().await?;
            if let Ok(count) = ready.try_io(|file| read_count(file.get_ref())) {
                return count;
            }
        }
    }
}

fn read_count(file: &OwnedFd) -> io::Result<u64> {
    let mut count = 0_u64;
    let size = size_of::<u64>();
    // SAFETY: `count` is a valid buffer of `size` bytes.
    let read = unsafe { libc::read(file.as_raw_fd(), (&raw mut count).cast(), size) };
    if read < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(count)
    }
}

fn check(code: i32) -> io::Result<()> {
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
