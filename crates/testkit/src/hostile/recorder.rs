//! An origin that records arriving requests, parsed strictly by RFC 9112 and without a library.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::raw::{RawConnection, RawServer};
use crate::wait::until;

/// The data received on a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Arrival {
    /// A whole request: `METHOD host target bytes-of-its-body`.
    Whole(String),
    /// The beginning of a request, and then the end of the connection.
    Cut(String),
    /// Data that are no request.
    Malformed(String),
}

/// The origin's reaction to the next request for `/case`.
#[derive(Clone, Debug)]
struct Script {
    bytes: Vec<u8>,
    close: bool,
}

#[derive(Debug, Default)]
struct State {
    arrived: Vec<Arrival>,
    /// Connections that are in the middle of a request.
    busy: BTreeMap<usize, ()>,
    count: u64,
    script: Option<Script>,
}

/// The origin behind the proxy under test. Each response has the number of its request in the field
/// `x-arrived`.
#[derive(Debug)]
pub struct Recorder {
    server: RawServer,
    state: Arc<Mutex<State>>,
}

/// A request that was read.
struct Request {
    text: String,
    is_head: bool,
    close: bool,
    is_case: bool,
}

impl Recorder {
    /// Listens on a free port.
    #[must_use]
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let server = RawServer::start(move |connection, number| {
            let mut reader = Reader {
                connection,
                buffer: Vec::new(),
                number,
                state: &shared,
            };
            reader.serve();
            Ok(())
        });
        Self { server, state }
    }

    /// Returns the address on which the recorder listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Sets the bytes of the response to the next request for `/case`, and whether to close the
    /// connection afterwards.
    ///
    /// # Panics
    ///
    /// If a thread of the recorder has panicked.
    pub fn answer_with(&self, bytes: Vec<u8>, close: bool) {
        self.state.lock().unwrap().script = Some(Script { bytes, close });
    }

    /// Returns the data received since the last call, once no connection is in the middle of a
    /// request.
    ///
    /// # Panics
    ///
    /// If one stays there.
    #[must_use]
    pub fn take(&self) -> Vec<Arrival> {
        let limit = Duration::from_secs(30);
        until(limit, "the origin has no request in the middle", || {
            let mut state = self.state.lock().unwrap();
            state
                .busy
                .is_empty()
                .then(|| std::mem::take(&mut state.arrived))
        })
    }
}

struct Reader<'a> {
    connection: &'a mut RawConnection,
    buffer: Vec<u8>,
    number: usize,
    state: &'a Mutex<State>,
}

/// The reason why a request was not read to its end.
enum Broken {
    Cut,
    Malformed,
}

impl Reader<'_> {
    fn serve(&mut self) {
        loop {
            let request = match self.read_request() {
                Ok(Some(request)) => request,
                Ok(None) => return,
                Err(broken) => {
                    let text = self.buffer.escape_ascii().to_string();
                    let arrival = match broken {
                        Broken::Cut => Arrival::Cut(text),
                        Broken::Malformed => Arrival::Malformed(text),
                    };
                    let mut state = self.state.lock().unwrap();
                    state.arrived.push(arrival);
                    state.busy.remove(&self.number);
                    return;
                }
            };
            let (bytes, close) = self.answer(request);
            // Counted as finished before the response is sent, which a runner waits for.
            if self.connection.send(bytes).is_err() || close {
                return;
            }
        }
    }

    fn answer(&self, request: Request) -> (Vec<u8>, bool) {
        let mut state = self.state.lock().unwrap();
        state.count += 1;
        let number = state.count;
        state.busy.remove(&self.number);
        state.arrived.push(Arrival::Whole(request.text));
        if request.is_case
            && let Some(script) = state.script.take()
        {
            return (script.bytes, script.close || request.close);
        }
        let body = number.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nx-arrived: {number}\r\n\r\n",
            body.len()
        );
        let answer = match request.is_head {
            true => head,
            false => head + &body,
        };
        (answer.into_bytes(), request.close)
    }

    /// Reads a request; `None`: the connection has ended between two requests.
    fn read_request(&mut self) -> Result<Option<Request>, Broken> {
        let head = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break self.buffer[..end + 4].to_vec();
            }
            if !self.fill()? {
                match self.buffer.is_empty() {
                    true => return Ok(None),
                    false => return Err(Broken::Cut),
                }
            }
        };
        let parsed = Head::parse(&head).ok_or(Broken::Malformed)?;
        if parsed.expects {
            let _ = self.connection.send("HTTP/1.1 100 Continue\r\n\r\n");
        }
        let mut at = head.len();
        let length = match parsed.length {
            Some(length) => {
                self.want(at + length)?;
                at += length;
                length
            }
            None => self.read_chunks(&mut at)?,
        };
        self.buffer.drain(..at);
        Ok(Some(Request {
            text: format!(
                "{} {} {} {length}",
                parsed.method, parsed.host, parsed.target
            ),
            is_head: parsed.method == "HEAD",
            close: parsed.close,
            is_case: parsed.target.starts_with("/case"),
        }))
    }

    /// Returns the bytes of a chunked body; `at` is moved after it.
    fn read_chunks(&mut self, at: &mut usize) -> Result<usize, Broken> {
        let mut length = 0;
        loop {
            let line = self.line(at)?;
            let size = std::str::from_utf8(&line).map_err(|_| Broken::Malformed)?;
            let is_hex = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
            let size = usize::from_str_radix(size, 16).ok().filter(|_| is_hex);
            let size = size.ok_or(Broken::Malformed)?;
            if size == 0 {
                break;
            }
            self.want(*at + size)?;
            *at += size;
            length += size;
            if !self.line(at)?.is_empty() {
                return Err(Broken::Malformed);
            }
        }
        loop {
            let line = self.line(at)?;
            match line.is_empty() {
                true => return Ok(length),
                false if field(&line).is_none() => return Err(Broken::Malformed),
                false => {}
            }
        }
    }

    /// Returns the line at `at`, which is moved after it.
    fn line(&mut self, at: &mut usize) -> Result<Vec<u8>, Broken> {
        loop {
            if let Some(end) = find(&self.buffer[*at..], b"\r\n") {
                let line = self.buffer[*at..*at + end].to_vec();
                *at += end + 2;
                return Ok(line);
            }
            if !self.fill()? {
                return Err(Broken::Cut);
            }
        }
    }

    /// Reads until this number of bytes is buffered.
    fn want(&mut self, bytes: usize) -> Result<(), Broken> {
        while self.buffer.len() < bytes {
            if !self.fill()? {
                return Err(Broken::Cut);
            }
        }
        Ok(())
    }

    /// Reads more bytes; returns false at the end.
    fn fill(&mut self) -> Result<bool, Broken> {
        if !self.buffer.is_empty() {
            self.state.lock().unwrap().busy.insert(self.number, ());
        }
        loop {
            match self.connection.read_some() {
                Ok(bytes) if bytes.is_empty() => return Ok(false),
                Ok(bytes) => {
                    self.state.lock().unwrap().busy.insert(self.number, ());
                    self.buffer.extend_from_slice(&bytes);
                    return Ok(true);
                }
                // An idle connection of the proxy's pool.
                Err(error) if is_timeout(&error) => {}
                Err(_) => return Ok(false),
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// The framing of a request.
struct Head {
    method: String,
    target: String,
    host: String,
    /// `None`: chunked.
    length: Option<usize>,
    expects: bool,
    close: bool,
}

impl Head {
    fn parse(head: &[u8]) -> Option<Self> {
        let text = &head[..head.len() - 4];
        // Neither CR nor LF remains once lines are split at both.
        let mut lines = split(text, b"\r\n").into_iter();
        let line = std::str::from_utf8(lines.next()?).ok()?;
        let words: Vec<_> = line.split(' ').collect();
        let &[method, target, "HTTP/1.1"] = &words[..] else {
            return None;
        };
        let is_printable =
            |text: &str| !text.is_empty() && text.bytes().all(|b| b > b' ' && b != 127);
        if !method.bytes().all(is_token) || method.is_empty() || !is_printable(target) {
            return None;
        }
        let fields: Vec<_> = lines.map(field).collect::<Option<_>>()?;
        let all = |name: &str| {
            let wanted = fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
            wanted.map(|(_, value)| *value).collect::<Vec<_>>()
        };
        let (lengths, codings) = (all("content-length"), all("transfer-encoding"));
        let length = match (&lengths[..], &codings[..]) {
            ([], []) => Some(0),
            ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => None,
            ([digits], []) if digits.iter().all(u8::is_ascii_digit) => {
                Some(std::str::from_utf8(digits).ok()?.parse().ok()?)
            }
            _ => return None,
        };
        let hosts = all("host");
        let [host] = hosts[..] else { return None };
        let has =
            |name: &str, token: &[u8]| all(name).iter().any(|v| v.eq_ignore_ascii_case(token));
        Some(Self {
            method: method.into(),
            target: target.into(),
            host: String::from_utf8_lossy(host).into_owned(),
            length,
            expects: has("expect", b"100-continue"),
            close: has("connection", b"close"),
        })
    }
}

/// Splits a field's line into name and value.
fn field(line: &[u8]) -> Option<(&str, &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let name = std::str::from_utf8(&line[..colon]).ok()?;
    let value = line[colon + 1..].trim_ascii();
    let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 127);
    let good =
        !name.is_empty() && name.bytes().all(is_token) && line[colon + 1..].iter().all(is_text);
    good.then_some((name, value))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

fn split<'a>(mut bytes: &'a [u8], at: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    while let Some(end) = find(bytes, at) {
        parts.push(&bytes[..end]);
        bytes = &bytes[end + at.len()..];
    }
    parts.push(bytes);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RawHttp1;

    #[test]
    fn requests_are_written_down_as_they_arrive() {
        let recorder = Recorder::start();
        let mut client = RawHttp1::connect(recorder.address());
        let chunked = "POST /b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nx: y\r\n\r\n";
        let got = client.request(chunked);
        assert_eq!((got.status, got.header("x-arrived")), (200, Some("1")));
        assert_eq!(client.get("/a").text(), "2");
        client.send("POST /cut HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\na");
        drop(client);
        let whole = |text: &str| Arrival::Whole(text.into());
        let arrived = until(crate::TIMEOUT, "the end", || {
            let arrived = recorder.take();
            (!arrived.is_empty()).then_some(arrived)
        });
        assert_eq!(arrived[..2], [whole("POST h /b 2"), whole("GET test /a 0")]);
    }

    #[test]
    fn what_another_parser_could_read_differently_is_no_request() {
        for head in [
            "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nx : y\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\nx: y\r\n\r\n",
            "GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.0\r\nhost: a\r\n\r\n",
        ] {
            assert!(Head::parse(head.as_bytes()).is_none(), "{head:?}");
        }
    }
}
