//! A connection that carries frames.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::frame::{Frame, LENGTH};
use crate::net::io::{Io, Stream};

/// Name of the protocol in `Upgrade`. An incompatible version must use another number.
pub(crate) const PROTOCOL: &[u8] = b"maglor-exchange/1";

/// Timeout of a write; after it the peer is considered unreachable or blocked.
const STUCK: Duration = Duration::from_secs(5);

/// Read size in bytes: some hundred frames.
const READ: usize = 4096;

/// A connection and its unread input.
#[derive(Debug)]
pub(crate) struct FrameStream {
    io: Io,
    input: BytesMut,
}

impl FrameStream {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            io: stream.io,
            input: BytesMut::from(stream.prefix),
        }
    }

    /// Waits for bytes; returns false at the end of the stream. Cancel safe.
    pub(crate) async fn fill(&mut self) -> io::Result<bool> {
        self.input.reserve(READ);
        Ok(self.io.read_buf(&mut self.input).await? > 0)
    }

    /// Returns the next complete frame. Unknown frames are skipped.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        while let Some(bytes) = self.input.first_chunk::<LENGTH>() {
            let frame = Frame::decode(bytes);
            self.input.advance(LENGTH);
            if frame.is_some() {
                return frame;
            }
        }
        None
    }

    /// Writes bytes and flushes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let write = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        timeout(STUCK, write).await?
    }
}
