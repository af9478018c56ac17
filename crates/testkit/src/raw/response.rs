//! A response as received, and its strict parser (RFC 9112).

use std::io::{self, ErrorKind};

use super::connection::RawConnection;

/// How the end of a body was marked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// `transfer-encoding: chunked`.
    Chunked,
    /// The end of the connection.
    Close,
    /// `content-length`.
    Length,
    /// There cannot be a body: 1xx, 204, 304, the response to HEAD, a successful CONNECT.
    NoBody,
}

/// A response with its header fields in the received order and case.
#[derive(Clone, Debug)]
pub struct RawResponse {
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: String,
    /// The status code.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// The names as written, the values without the white space around them.
    pub headers: Vec<(String, String)>,
    /// The body without its chunking.
    pub body: Vec<u8>,
    /// Header fields after a chunked body.
    pub trailers: Vec<(String, String)>,
    /// How the end of the body was marked.
    pub framing: Framing,
}

impl RawResponse {
    /// Returns the value of a header that may occur once, ignoring the case of its name.
    ///
    /// # Panics
    ///
    /// If it occurs more than once.
    #[must_use]
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let values = self.header_all(name);
        assert!(values.len() <= 1, "{name} came {} times", values.len());
        values.first().copied()
    }

    /// Returns all values of a header, ignoring the case of its name.
    #[must_use]
    pub fn header_all(&self, name: &str) -> Vec<&str> {
        values(&self.headers, name)
    }

    /// Returns the body as text.
    ///
    /// # Panics
    ///
    /// If it is not UTF-8.
    #[must_use]
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of text")
    }

    /// Returns the body as JSON.
    ///
    /// # Panics
    ///
    /// If it is not valid JSON.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a body of JSON")
    }

    /// Reads one response to a request with this method.
    pub(crate) fn read(connection: &mut RawConnection, method: &str) -> io::Result<Self> {
        let head = connection.read_head()?;
        let (version, status, reason, headers) = parse_head(&head)?;
        let mut response = Self {
            version,
            status,
            reason,
            framing: framing(method, status, &headers)?,
            headers,
            body: Vec::new(),
            trailers: Vec::new(),
        };
        match response.framing {
            Framing::Chunked => response.read_chunks(connection)?,
            Framing::Close => response.body = connection.read_to_end()?,
            Framing::Length => {
                let length = values(&response.headers, "content-length")[0];
                response.body = connection.read_exact(number(length, 10)?)?;
            }
            Framing::NoBody => {}
        }
        Ok(response)
    }

    fn read_chunks(&mut self, connection: &mut RawConnection) -> io::Result<()> {
        loop {
            let line = connection.read_until(b"\r\n")?;
            let line = std::str::from_utf8(&line).map_err(|_| malformed("chunk", "no text"))?;
            let size = line.trim_end_matches("\r\n");
            let size = size.split_once(';').map_or(size, |(size, _)| size);
            let size = number(size, 16)?;
            if size == 0 {
                break;
            }
            self.body.extend(connection.read_exact(size)?);
            connection.expect("\r\n")?;
        }
        loop {
            let line = connection.read_until(b"\r\n")?;
            let line = String::from_utf8(line).map_err(|_| malformed("trailer", "no text"))?;
            match line.trim_end_matches("\r\n") {
                "" => return Ok(()),
                field => self.trailers.push(parse_field(field)?),
            }
        }
    }
}

type Head = (String, u16, String, Vec<(String, String)>);

fn parse_head(head: &str) -> io::Result<Head> {
    let mut lines = head.trim_end_matches("\r\n").split("\r\n");
    let line = lines.next().unwrap_or_default();
    let bad = || malformed("status line", line);
    let mut parts = line.splitn(3, ' ');
    let version = parts.next().ok_or_else(bad)?;
    let status = parts.next().ok_or_else(bad)?;
    // The space before the reason is mandatory even if there is none.
    let reason = parts.next().ok_or_else(bad)?;
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") || status.len() != 3 {
        return Err(bad());
    }
    let status = status.parse().map_err(|_| bad())?;
    if !(100..600).contains(&status) {
        return Err(bad());
    }
    let headers = lines.map(parse_field).collect::<io::Result<_>>()?;
    Ok((version.into(), status, reason.into(), headers))
}

fn parse_field(line: &str) -> io::Result<(String, String)> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let (name, value) = line
        .split_once(':')
        .ok_or_else(|| malformed("header field", line))?;
    let value = value.trim_matches([' ', '\t']);
    let is_text = |c: char| c == '\t' || !c.is_control();
    if name.is_empty() || !name.bytes().all(is_token) || !value.chars().all(is_text) {
        return Err(malformed("header field", line));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn framing(method: &str, status: u16, headers: &[(String, String)]) -> io::Result<Framing> {
    let codings = values(headers, "transfer-encoding");
    let lengths = values(headers, "content-length");
    if lengths.len() > 1 || (!lengths.is_empty() && !codings.is_empty()) {
        return Err(malformed("framing", &format!("{lengths:?} {codings:?}")));
    }
    let tunnel = method == "CONNECT" && (200..300).contains(&status);
    if method == "HEAD" || tunnel || matches!(status, 100..=199 | 204 | 304) {
        return Ok(Framing::NoBody);
    }
    match codings[..] {
        [] if lengths.is_empty() => Ok(Framing::Close),
        [] => Ok(Framing::Length),
        [coding] if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
        _ => Err(malformed("transfer-encoding", &codings.join(" | "))),
    }
}

fn values<'a>(headers: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    headers
        .iter()
        .filter(|(header, _)| header.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
        .collect()
}

/// Parses a number without sign or white space.
fn number(digits: &str, radix: u32) -> io::Result<usize> {
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    plain
        .then(|| usize::from_str_radix(digits, radix).ok())
        .flatten()
        .ok_or_else(|| malformed("number", digits))
}

fn malformed(what: &str, text: &str) -> io::Error {
    let text = text.escape_debug();
    io::Error::new(
        ErrorKind::InvalidData,
        format!("malformed {what}: \"{text}\""),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(head: &str) -> io::Result<Framing> {
        let (_, status, _, headers) = parse_head(head)?;
        framing("GET", status, &headers)
    }

    #[test]
    fn framing_follows_the_head() {
        let head = |rest: &str| framed(&format!("HTTP/1.1 200 OK\r\n{rest}\r\n")).unwrap();
        assert_eq!(head(""), Framing::Close);
        assert_eq!(head("Content-Length: 3\r\n"), Framing::Length);
        assert_eq!(head("transfer-encoding: Chunked\r\n"), Framing::Chunked);
        assert_eq!(framed("HTTP/1.1 204 \r\n\r\n").unwrap(), Framing::NoBody);
    }

    #[test]
    fn what_is_not_quite_http_is_refused() {
        for head in [
            "HTTP/1.1 200\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 99 OK\r\n\r\n",
            "HTTP/1.1 700 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nname : value\r\n\r\n",
            "HTTP/1.1 200 OK\r\nname: a\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nname: a\nb: c\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: value\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        ] {
            assert!(framed(head).is_err(), "{head:?}");
        }
        for digits in ["", "+1", "1 ", "-1", "x"] {
            assert!(number(digits, 10).is_err(), "{digits:?}");
        }
    }
}
