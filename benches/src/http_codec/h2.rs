//! HTTP/2 frames (RFC 9113): just enough for one request at a time on a connection.
//!
//! Flow control never stops an answer: the client announces the largest stream window and refills
//! the connection window long before it is used up.

use crate::error::{Error, Result};

/// The client connection preface.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest frame that a peer may send without negotiation, with its header.
pub(crate) const MAX_FRAME: usize = HEAD + 16_384;

const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
const INITIAL_WINDOW_SIZE: u16 = 4;
const ENABLE_PUSH: u16 = 2;
const LARGEST_WINDOW: u32 = (1 << 31) - 1;
const DEFAULT_WINDOW: u32 = 65_535;
const REFILL: u32 = 1 << 29;
/// HPACK: `:status: 200`, index 8 of the static table.
const STATUS_200: u8 = 0x88;

// HPACK names in the static table: indices above 14 need a second byte.
const AUTHORITY: &[u8] = &[1];
const PATH: &[u8] = &[4];
const ACCEPT: &[u8] = &[15, 19 - 15];
const USER_AGENT: &[u8] = &[15, 58 - 15];

/// One frame, borrowed from the receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &'a [u8],
}

/// Returns the first frame of `bytes` and its length, once it is complete.
pub(crate) fn first_frame(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
        return Ok(None);
    };
    let [a, b, c, kind, flags, stream @ ..] = *head;
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    if HEAD + length > MAX_FRAME {
        return Err(Error::protocol(format!("frame of {length} bytes")));
    }
    let Some(payload) = rest.get(..length) else {
        return Ok(None);
    };
    let stream = u32::from_be_bytes(stream) & LARGEST_WINDOW;
    Ok(Some((
        Frame {
            kind,
            flags,
            stream,
            payload,
        },
        HEAD + length,
    )))
}

fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Answers the frames that need an answer, for client and server.
fn housekeeping(frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<()> {
    match (frame.kind, frame.flags & ACK) {
        (SETTINGS, 0) => put(out, SETTINGS, ACK, 0, &[]),
        (PING, 0) => put(out, PING, ACK, 0, frame.payload),
        (GOAWAY | RST_STREAM, _) => {
            let text = String::from_utf8_lossy(frame.payload);
            return Err(Error::protocol(format!(
                "h2 frame {}: {text:?}",
                frame.kind
            )));
        }
        _ => {}
    }
    Ok(())
}

/// The client's side of one connection.
#[derive(Debug)]
pub(crate) struct Client {
    block: Vec<u8>,
    body: usize,
    stream: u32,
    status: bool,
    received: usize,
    unacknowledged: u32,
}

impl Client {
    /// Creates a client that requests bodies of `body` bytes.
    pub(crate) fn new(authority: &str, body: usize) -> Self {
        let mut block = vec![0x82, 0x86];
        literal(&mut block, PATH, &format!("/{body}"));
        literal(&mut block, AUTHORITY, authority);
        literal(&mut block, ACCEPT, "*/*");
        literal(&mut block, USER_AGENT, "maglor-load");
        Self {
            block,
            body,
            stream: 0,
            status: false,
            received: 0,
            unacknowledged: 0,
        }
    }

    /// Appends the connection preface.
    pub(crate) fn open(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFACE);
        let mut settings = Vec::with_capacity(12);
        settings.extend_from_slice(&ENABLE_PUSH.to_be_bytes());
        settings.extend_from_slice(&0_u32.to_be_bytes());
        settings.extend_from_slice(&INITIAL_WINDOW_SIZE.to_be_bytes());
        settings.extend_from_slice(&LARGEST_WINDOW.to_be_bytes());
        put(out, SETTINGS, 0, 0, &settings);
        put(
            out,
            WINDOW_UPDATE,
            0,
            0,
            &(LARGEST_WINDOW - DEFAULT_WINDOW).to_be_bytes(),
        );
    }

    /// Appends the next request.
    pub(crate) fn ask(&mut self, out: &mut Vec<u8>) {
        self.stream = if self.stream == 0 { 1 } else { self.stream + 2 };
        self.status = false;
        self.received = 0;
        put(
            out,
            HEADERS,
            END_HEADERS | END_STREAM,
            self.stream,
            &self.block,
        );
    }

    /// Processes one frame, appends the necessary answers, and returns whether the answer is
    /// complete.
    pub(crate) fn take(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<bool> {
        match frame.kind {
            HEADERS if frame.stream == self.stream => self.take_head(frame)?,
            DATA if frame.stream == self.stream => self.take_data(frame, out),
            _ => {
                housekeeping(frame, out)?;
                return Ok(false);
            }
        }
        let done = frame.flags & END_STREAM != 0;
        if done && (!self.status || self.received != self.body) {
            let text = format!("length {} instead of {}", self.received, self.body);
            return Err(Error::protocol(text));
        }
        Ok(done)
    }

    fn take_head(&mut self, frame: &Frame<'_>) -> Result<()> {
        let block = unpadded(frame, if frame.flags & PRIORITY == 0 { 0 } else { 5 });
        // Size updates of the dynamic table may come first.
        let first = block.iter().find(|byte| **byte & 0xe0 != 0x20);
        if frame.flags & END_HEADERS == 0 || first != Some(&STATUS_200) {
            return Err(Error::protocol(format!("h2 head {block:02x?}")));
        }
        self.status = true;
        Ok(())
    }

    fn take_data(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        self.received += unpadded(frame, 0).len();
        self.unacknowledged += u32::try_from(frame.payload.len()).unwrap_or(0);
        if self.unacknowledged > REFILL {
            put(out, WINDOW_UPDATE, 0, 0, &self.unacknowledged.to_be_bytes());
            self.unacknowledged = 0;
        }
    }
}

/// Appends a literal without indexing, whose name is in the static table.
fn literal(block: &mut Vec<u8>, name: &[u8], value: &str) {
    block.extend_from_slice(name);
    block.push(u8::try_from(value.len()).unwrap_or(0));
    block.extend_from_slice(value.as_bytes());
}

fn unpadded<'a>(frame: &Frame<'a>, skip: usize) -> &'a [u8] {
    let (pad, start) = match frame.payload.first() {
        Some(pad) if frame.flags & PADDED != 0 => (usize::from(*pad), skip + 1),
        _ => (0, skip),
    };
    let end = frame.payload.len().saturating_sub(pad);
    frame.payload.get(start..end).unwrap_or_default()
}

/// The server's side, which supports the requests of [`Client`] only.
#[derive(Debug, Default)]
pub(crate) struct Server;

impl Server {
    /// Appends the server's settings.
    pub(crate) fn open(&self, out: &mut Vec<u8>) {
        put(out, SETTINGS, 0, 0, &[]);
    }

    /// Processes one frame and appends the answer, with the body of `body_of` for a path.
    pub(crate) fn take<'b>(
        &self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        body_of: impl Fn(&str) -> Option<&'b [u8]>,
    ) -> Result<()> {
        if frame.kind != HEADERS {
            return housekeeping(frame, out);
        }
        let path = client_path(frame.payload);
        let body = path
            .and_then(body_of)
            .ok_or_else(|| Error::protocol("h2 request"))?;
        put(out, HEADERS, END_HEADERS, frame.stream, &[STATUS_200]);
        put(out, DATA, END_STREAM, frame.stream, body);
        Ok(())
    }
}

fn client_path(block: &[u8]) -> Option<&str> {
    let (&[0x82, 0x86, 0x04, length], rest) = block.split_first_chunk()? else {
        return None;
    };
    std::str::from_utf8(rest.get(..usize::from(length))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(mut bytes: &[u8]) -> Vec<Frame<'_>> {
        let mut all = Vec::new();
        while let Some((frame, length)) = first_frame(bytes).unwrap() {
            all.push(frame);
            bytes = &bytes[length..];
        }
        assert!(bytes.is_empty());
        all
    }

    fn answer(body: &'static [u8], wanted: usize) -> Result<bool> {
        let (mut client, mut sent, mut back) = (Client::new("h:1", wanted), Vec::new(), Vec::new());
        client.ask(&mut sent);
        let path = format!("/{wanted}");
        for frame in frames(&sent) {
            Server.take(&frame, &mut back, |asked| (asked == path).then_some(body))?;
        }
        let mut out = Vec::new();
        let mut done = false;
        for frame in frames(&back) {
            done = client.take(&frame, &mut out)?;
        }
        Ok(done)
    }

    #[test]
    fn client_and_server_agree() {
        assert!(answer(&[7; 64], 64).unwrap());
        assert!(answer(&[7; 63], 64).is_err());
    }

    #[test]
    fn half_frames_wait_and_huge_ones_fail() {
        assert_eq!(
            first_frame(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 1, 2]).unwrap(),
            None
        );
        assert!(first_frame(&[1, 0, 0, 0, 0, 0, 0, 0, 1]).is_err());
    }

    #[test]
    fn settings_and_pings_are_answered() {
        let mut client = Client::new("h:1", 1);
        let mut out = Vec::new();
        let ping = Frame {
            kind: PING,
            flags: 0,
            stream: 0,
            payload: &[1; 8],
        };
        assert!(!client.take(&ping, &mut out).unwrap());
        assert_eq!(frames(&out), [Frame { flags: ACK, ..ping }]);
        let refused = Frame {
            kind: GOAWAY,
            flags: 0,
            stream: 0,
            payload: &[0; 8],
        };
        assert!(client.take(&refused, &mut out).is_err());
    }

    #[test]
    fn padding_and_table_size_are_skipped() {
        let mut client = Client::new("h:1", 0);
        let mut out = Vec::new();
        client.ask(&mut out);
        let flags = PADDED | END_HEADERS | END_STREAM;
        let payload = &[2, 0x20, STATUS_200, 0, 0];
        assert!(
            client
                .take(
                    &Frame {
                        kind: HEADERS,
                        flags,
                        stream: 1,
                        payload
                    },
                    &mut out
                )
                .unwrap()
        );
        let not_found = Frame {
            kind: HEADERS,
            flags: 5,
            stream: 3,
            payload: &[0x8d],
        };
        client.ask(&mut out);
        assert!(client.take(&not_found, &mut out).is_err());
    }
}
