//! `splice(2)` from a socket into a pipe and from there into another socket.
//!
//! Pipes are taken from a small pool of the thread when data has come and are given back as soon as
//! they are empty and no more has come. The unsafe code is two system calls.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// Empty pipes that a thread keeps. Each is two descriptors and about 1 kB of kernel memory.
const POOL: usize = 16;
/// Asked for at once; a pipe takes 64 KiB unless it was made larger.
const MAX: usize = 1 << 20;

thread_local! {
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A pipe and how many bytes are in it.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    len: usize,
}

impl Pipe {
    /// An empty pipe, from the pool or a new one.
    pub(super) fn take() -> io::Result<Self> {
        match PIPES.with_borrow_mut(Vec::pop) {
            Some(pipe) => Ok(pipe),
            None => Self::new(),
        }
    }

    /// Back to the pool; a pipe with bytes in it is closed instead.
    pub(super) fn give_back(self) {
        PIPES.with_borrow_mut(|pipes| {
            if self.len == 0 && pipes.len() < POOL {
                pipes.push(self);
            }
        });
    }

    /// Empties the pool of this thread and says how many pipes were in it.
    #[cfg(test)]
    pub(super) fn empty_pool() -> usize {
        PIPES.take().len()
    }

    /// Bytes in the pipe.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Reads from a socket that is ready into the pipe, which must be empty: otherwise "would block"
    /// could mean that the pipe is full, and nobody would wake the task.
    pub(super) fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        debug_assert_eq!(self.len, 0, "filled again before it was empty");
        let n = from.try_io(Interest::READABLE, || splice(from, &self.write, MAX))?;
        self.len += n;
        Ok(n)
    }

    /// Writes some of what is in the pipe to a socket.
    pub(super) fn poll_drain(
        &mut self,
        cx: &mut Context<'_>,
        to: &TcpStream,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(to.poll_write_ready(cx))?;
            match to.try_io(Interest::WRITABLE, || splice(&self.read, to, self.len)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(n) => {
                    self.len -= n;
                    return Poll::Ready(Ok(n));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    #[allow(unsafe_code)]
    fn new() -> io::Result<Self> {
        let mut fds = [0; 2];
        // SAFETY: `fds` has room for the two descriptors that the call writes.
        let result = unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so both are open, and nobody else owns them.
        let [read, write] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self {
            read,
            write,
            len: 0,
        })
    }
}

/// Whether an error of [`Pipe::fill`] says that these sockets cannot be spliced (a kernel or a
/// sandbox without it) rather than that the connection failed.
pub(super) fn unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)
    )
}

/// Moves up to `len` bytes; one of the two is a pipe.
#[allow(unsafe_code)]
fn splice(from: &impl AsRawFd, to: &impl AsRawFd, len: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE;
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    let no_offset = std::ptr::null_mut();
    // SAFETY: both descriptors are open while they are borrowed, and no memory is handed over: null
    // offsets are what the call asks for with sockets and pipes.
    let n = unsafe { libc::splice(from, no_offset, to, no_offset, len, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}
