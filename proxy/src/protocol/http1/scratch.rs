//! A read buffer for each thread.
//!
//! A socket is read only when it is readable, a head is parsed in the buffer, and data that must live longer is
//! copied out at its exact size. Thousands of connections thus need only one buffer, which stays in the CPU cache.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};

use crate::net::io::Io;
use crate::os::memory;

const SIZE: usize = 64 * 1024;
/// Number of expected bytes from which body reads use their own buffer instead of the thread's.
const DIRECT_READ: u64 = 4 * 1024;
const MAX_DIRECT_READ: u64 = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SIZE].into_boxed_slice());
}

/// Reads once and passes the bytes (none at the end of the stream) to `f`.
pub(crate) fn poll_read<R>(
    io: &mut Io,
    cx: &mut Context<'_>,
    f: impl FnOnce(&[u8]) -> R,
) -> Poll<io::Result<R>> {
    poll_read_some(io, cx, SIZE, f)
}

/// Like [`poll_read`], but reads at most `most` bytes.
pub(crate) fn poll_read_some<R>(
    io: &mut Io,
    cx: &mut Context<'_>,
    most: usize,
    f: impl FnOnce(&[u8]) -> R,
) -> Poll<io::Result<R>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut buf = ReadBuf::new(&mut scratch[..most.min(SIZE)]);
        ready!(Pin::new(io).poll_read(cx, &mut buf))?;
        Poll::Ready(Ok(f(buf.filled())))
    })
}

/// Reads body bytes into `input`: large reads directly, small ones through the thread's buffer.
pub(crate) fn poll_read_body(
    io: &mut Io,
    input: &mut BytesMut,
    expected: u64,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    if expected >= DIRECT_READ {
        let most = MAX_DIRECT_READ.min(memory::read_limit());
        let want = usize::try_from(expected.min(most)).unwrap_or(usize::MAX);
        // Memory is reserved only when there is something to read. Under TLS, decrypted bytes may be available although the
        // socket is not readable.
        if let Io::Tcp(tcp) = io {
            ready!(tcp.poll_read_ready(cx))?;
        }
        make_room(input, want);
        let read = tokio_util::io::poll_read_buf(Pin::new(io), cx, input);
        if read.is_pending() && input.is_empty() {
            *input = BytesMut::new();
        }
        return read;
    }
    poll_read(io, cx, |bytes| {
        input.extend_from_slice(bytes);
        bytes.len()
    })
}

/// Makes room for reading `want` bytes, or fewer if parts of the buffer that were read before are still in use: a new buffer
/// for each read would hold many times the bytes of a body that arrives byte by byte and is kept for retries.
fn make_room(input: &mut BytesMut, want: usize) {
    let least = want.min(DIRECT_READ as usize);
    if !input.try_reclaim(want) && input.capacity() - input.len() < least {
        input.reserve(want);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANT: usize = MAX_DIRECT_READ as usize;

    #[test]
    fn a_buffer_is_used_up_before_there_is_another() {
        let mut input = BytesMut::new();
        let mut kept = Vec::new();
        let mut buffers = 0;
        for _ in 0..WANT {
            let before = input.capacity();
            make_room(&mut input, WANT);
            buffers += usize::from(input.capacity() > before);
            input.extend_from_slice(b"a");
            kept.push(input.split().freeze());
        }
        assert_eq!(buffers, 2);
        drop(kept);
        make_room(&mut input, WANT);
        assert!(input.capacity() >= WANT, "it is free again");
    }
}
