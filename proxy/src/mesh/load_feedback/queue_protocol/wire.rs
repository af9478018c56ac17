//! A connection that carries frames.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::frame::{Frame, LENGTH};
use crate::net::io::{Io, Stream};

/// The protocol's name in `Upgrade`. A version that old ends could not read gets another number.
pub(crate) const PROTOCOL: &[u8] = b"maglor-exchange/1";

/// A write that takes longer than this means that the other end is gone, or stuck.
const STUCK: Duration = Duration::from_secs(5);

/// Bytes read at once: some hundred frames.
const READ: usize = 4096;

/// A connection with what was read from it.
#[derive(Debug)]
pub(crate) struct Wire {
    io: Io,
    input: BytesMut,
}

impl Wire {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            io: stream.io,
            input: BytesMut::from(stream.prefix),
        }
    }

    /// Waits for bytes; false at the end of the stream. Loses nothing when it is dropped.
    pub(crate) async fn fill(&mut self) -> io::Result<bool> {
        self.input.reserve(READ);
        Ok(self.io.read_buf(&mut self.input).await? > 0)
    }

    /// The next whole frame that is there. Unknown ones are passed over.
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

    /// Sends.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let write = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        timeout(STUCK, write).await?
    }
}
