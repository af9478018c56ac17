//! A one-shot timer of nanosecond resolution: tokio's own has one millisecond.
#![allow(unsafe_code, reason = "timerfd has no safe form in std")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use tokio::io::unix::AsyncFd;

/// A timerfd(2).
#[derive(Debug)]
pub(super) struct Alarm {
    file: AsyncFd<OwnedFd>,
}

impl Alarm {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    ///
    /// The system call fails, or there is no runtime.
    pub(super) fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: the descriptor is checked, fresh, and has no other owner.
        let file = unsafe {
            let raw = libc::timerfd_create(libc::CLOCK_MONOTONIC, flags);
            check(raw)?;
            OwnedFd::from_raw_fd(raw)
        };
        // SAFETY: an `OwnedFd` keeps one descriptor open for as long as it lives.
        let file = unsafe { AsyncFd::register(file) }?;
        Ok(Self { file })
    }

    /// Sets it to expire once after `delay`, and at no other time.
    ///
    /// # Errors
    ///
    /// The system call fails.
    pub(super) fn set(&self, delay: Duration) -> io::Result<()> {
        // Zero would unset it.
        let delay = delay.max(Duration::from_nanos(1));
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let setting = libc::itimerspec {
            it_interval: zero,
            it_value: libc::timespec {
                tv_sec: delay.as_secs().cast_signed(),
                tv_nsec: i64::from(delay.subsec_nanos()),
            },
        };
        // SAFETY: `setting` lives through the call; a null old value is allowed.
        let code = unsafe {
            libc::timerfd_settime(
                self.file.as_raw_fd(),
                0,
                &raw const setting,
                std::ptr::null_mut(),
            )
        };
        check(code)
    }

    /// Waits until it expires.
    ///
    /// # Errors
    ///
    /// The timer cannot be read.
    pub(super) async fn rings(&self) -> io::Result<()> {
        loop {
            let mut ready = self.file.readable().await?;
            if let Ok(read) = ready.try_io(|file| read(file.get_ref())) {
                return read;
            }
        }
    }
}

fn read(file: &OwnedFd) -> io::Result<()> {
    let mut count = 0_u64;
    let size = size_of::<u64>();
    // SAFETY: `count` is a valid buffer of `size` bytes.
    let read = unsafe { libc::read(file.as_raw_fd(), (&raw mut count).cast(), size) };
    if read < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn check(code: i32) -> io::Result<()> {
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
