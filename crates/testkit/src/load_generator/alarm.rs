//! A one-shot timer of nanosecond resolution: tokio's own has one millisecond.
#![allow(unsafe_code, reason = "tokio's safe form is deprecated")]

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A timerfd(2).
#[derive(Debug)]
pub(super) struct Alarm {
    file: AsyncFd<OwnedFd>,
}

impl Alarm {
    /// Creates a timer that is not set.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an `OwnedFd` keeps one descriptor open for as long as it lives.
        let file = unsafe { AsyncFd::register(timer) }?;
        Ok(Self { file })
    }

    /// Sets it to expire once after `delay`, and at no other time.
    pub(super) fn set(&self, delay: Duration) -> io::Result<()> {
        // Zero would unset it.
        let delay = delay.max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: delay.as_secs().cast_signed(),
                tv_nsec: delay.subsec_nanos().into(),
            },
        };
        timerfd_settime(&self.file, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Waits until it expires.
    pub(super) async fn rings(&self) -> io::Result<()> {
        loop {
            let mut ready = self.file.readable().await?;
            let read = ready.try_io(|file| Ok(rustix::io::read(file, &mut [0; 8])?));
            if let Ok(read) = read {
                return read.map(drop);
            }
        }
    }
}
