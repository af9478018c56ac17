//! `splice(2)` from a socket into a pipe and from there into another socket.
//!
//! Pipes are taken from a small per-thread pool when data arrives, and returned as soon as they are empty and no more
//! data is available. The unsafe code is limited to two system calls.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// Maximum number of empty pipes in a thread's pool. Each costs two descriptors and about 1 kB of kernel
/// memory.
const POOL: usize = 16;
/// Bytes requested at once; a pipe holds 64 KiB unless it was enlarged.
const MAX: usize = 1 << 20;

thread_local! {
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A pipe and the number of bytes in it.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    len: usize,
}

impl Pipe {
    /// Returns a pipe from the pool, or a new one if the pool is empty.
    pub(super) fn take() -> io::Result<Self> {
        match PIPES.with_borrow_mut(Vec::pop) {
            Some(pipe) => Ok(pipe),
            None => Self::new(),
        }
    }

    /// Returns the pipe to the pool; a pipe that is not empty is closed instead.
    pub(super) fn put_back(self) {
        PIPES.with_borrow_mut(|pipes| {
            if self.len == 0 && pipes.len() < POOL {
                pipes.push(self);
            }
        });
    }

    /// Empties the pool of this thread; returns the number of closed pipes.
    #[cfg(test)]
    pub(super) fn empty_pool() -> usize {
        PIPES.take().len()
    }

    /// Returns the number of bytes in the pipe.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Reads from a ready socket into the pipe, which must be empty. Otherwise "would block" could mean that the pipe
    /// is full, and no event would wake the task.
    pub(super) fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        debug_assert_eq!(self.len, 0, "filled again before it was empty");
        let n = from.try_io(Interest::READABLE, || splice(from, &self.write, MAX))?;
        self.len += n;
        Ok(n)
    }

    /// Writes from the pipe to a socket.
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
        // SAFETY: the call succeeded, so both are open, and nothing else owns them.
        let [read, write] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self {
            read,
            write,
            len: 0,
        })
    }
}

/// Returns whether an error of [`Pipe::fill`] means that these sockets cannot be spliced (a kernel or a
/// sandbox without support) rather than that the connection failed.
pub(super) fn unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)
    )
}

/// Moves up to `len` bytes between two descriptors, one of which is a pipe.
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
