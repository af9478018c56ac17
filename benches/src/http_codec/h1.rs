//! HTTP/1.1: one preformatted request, answers checked for status and length.

use memchr::memmem;

use crate::error::{Error, Result};

const HEAD_END: &[u8] = b"\r\n\r\n";

/// Returns the request for a body of `body` bytes, as a small client sends it.
pub(crate) fn request(authority: &str, body: usize) -> Vec<u8> {
    request_for(authority, &format!("/{body}"))
}

/// Returns a `GET` request for `path`.
pub(crate) fn request_for(authority: &str, path: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nhost: {authority}\r\nuser-agent: maglor-load\r\naccept: */*\r\n\r\n"
    )
    .into_bytes()
}

/// Returns a `200` answer with `body`.
pub(crate) fn response(body: &[u8]) -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// Returns the length of the head in `bytes`, with the empty line, once it is complete.
pub(crate) fn head_len(bytes: &[u8]) -> Option<usize> {
    memmem::find(bytes, HEAD_END).map(|at| at + HEAD_END.len())
}

/// Returns the path of a `GET` request head.
pub(crate) fn path(head: &[u8]) -> Result<&str> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    std::str::from_utf8(line)
        .ok()
        .and_then(|line| line.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1"))
        .ok_or_else(|| Error::protocol(format!("request {:?}", String::from_utf8_lossy(line))))
}

/// Checks an answer's head and returns the length of the whole message.
pub(crate) fn check_head(head: &[u8], body: usize) -> Result<usize> {
    let whole = message_len(head)?;
    if whole - head.len() == body {
        return Ok(whole);
    }
    Err(Error::protocol(format!(
        "length {} instead of {body}",
        whole - head.len()
    )))
}

/// Returns the length of the whole `200` answer that begins with `head`.
pub(crate) fn message_len(head: &[u8]) -> Result<usize> {
    if !head.starts_with(b"HTTP/1.1 200 ") {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        return Err(Error::protocol(String::from_utf8_lossy(line)));
    }
    content_length(head)
        .map(|length| head.len() + length)
        .ok_or_else(|| Error::protocol("no content-length"))
}

fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        if !name.eq_ignore_ascii_case(NAME) {
            return None;
        }
        std::str::from_utf8(value).ok()?.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_and_response_fit() {
        let request = request("127.0.0.1:1", 64);
        assert_eq!(head_len(&request), Some(request.len()));
        assert_eq!(path(&request).unwrap(), "/64");
        let answer = response(&[b'x'; 64]);
        let head = head_len(&answer).unwrap();
        assert_eq!(check_head(&answer[..head], 64).unwrap(), answer.len());
    }

    #[test]
    fn incomplete_heads_wait() {
        assert_eq!(head_len(b"HTTP/1.1 200 OK\r\n"), None);
    }

    #[test]
    fn wrong_answers_are_errors() {
        assert!(check_head(b"HTTP/1.1 503 No\r\ncontent-length: 64\r\n\r\n", 64).is_err());
        assert!(check_head(b"HTTP/1.1 200 OK\r\nContent-Length: 63\r\n\r\n", 64).is_err());
        assert!(check_head(b"HTTP/1.1 200 OK\r\n\r\n", 64).is_err());
        assert!(path(b"POST / HTTP/1.1\r\n\r\n").is_err());
    }

    #[test]
    fn names_are_case_insensitive() {
        let head = b"HTTP/1.1 200 OK\r\nServer: x\r\nCONTENT-LENGTH:  7 \r\n\r\n";
        assert_eq!(check_head(head, 7).unwrap(), head.len() + 7);
    }
}
