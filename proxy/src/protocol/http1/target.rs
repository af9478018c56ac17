//! The forms of a request's target (RFC 9112 §3.2).

use http::Method;

use super::error::HeadError;
use crate::protocol::fields::Span;

/// The target of a request, as spans of its fields' text. Every waiting request has one: spans of the path and the query
/// would make it larger by two thirds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Target {
    /// Path and query, or `*`: the target for an origin server.
    pub(crate) path_and_query: Span,
    /// Length of the path. If there is more, this is a question mark and the query.
    path_length: u32,
    /// Host and port; `None` if the target does not contain them.
    pub(crate) authority: Option<Span>,
}

impl Target {
    /// Creates a target from a path with or without query that begins at `start` of a text.
    pub(crate) fn origin(text: &[u8], start: usize) -> Self {
        let length = memchr::memchr(b'?', text).unwrap_or(text.len());
        let path = Span::new(start, length);
        Self {
            path_and_query: Span::new(start, text.len()),
            path_length: path.end - path.start,
            authority: None,
        }
    }

    pub(crate) fn path(&self) -> Span {
        let start = self.path_and_query.start;
        Span {
            start,
            end: start + self.path_length,
        }
    }

    /// Returns the query without its question mark; `None` if there is none.
    pub(crate) fn query(&self) -> Option<Span> {
        let (mark, end) = (self.path().end, self.path_and_query.end);
        (mark < end).then(|| Span {
            start: mark + 1,
            end,
        })
    }
}

/// Parses the forms of RFC 9112 §3.2. `start` is the target's offset in the head.
pub(super) fn parse_target(
    method: &Method,
    text: &[u8],
    start: usize,
) -> Result<Target, HeadError> {
    if memchr::memchr(b'#', text).is_some() {
        return Err(HeadError::Target);
    }
    if *method == Method::CONNECT {
        let (_, port) = split_port(text).ok_or(HeadError::Target)?;
        let valid = is_host(text) && !port.is_empty();
        let authority = Some(Span::new(start, text.len()));
        return if valid {
            Ok(Target {
                authority,
                ..Target::default()
            })
        } else {
            Err(HeadError::Target)
        };
    }
    if text.starts_with(b"/") || (text == b"*" && *method == Method::OPTIONS) {
        return Ok(Target::origin(text, start));
    }
    absolute_target(text, start)
}

/// Parses `http://authority/path?query`; an empty path means `/`, which is not in the text.
fn absolute_target(text: &[u8], start: usize) -> Result<Target, HeadError> {
    let scheme = [&b"http://"[..], b"https://"].into_iter().find(|scheme| {
        text.get(..scheme.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    });
    let after = scheme.ok_or(HeadError::Target)?.len();
    let rest = &text[after..];
    let end = rest
        .iter()
        .position(|b| matches!(b, b'/' | b'?'))
        .unwrap_or(rest.len());
    if end == 0 || !is_host(&rest[..end]) {
        return Err(HeadError::Target);
    }
    let target = Target::origin(&rest[end..], start + after + end);
    Ok(Target {
        authority: Some(Span::new(start + after, end)),
        ..target
    })
}

/// Splits `host:port`, if there is a port.
fn split_port(authority: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memrchr(b':', authority)?;
    let port = &authority[colon + 1..];
    port.iter()
        .all(u8::is_ascii_digit)
        .then(|| (&authority[..colon], port))
}

/// Returns whether a text is a host with an optional port (RFC 9110 §7.2). Credentials are rejected, and so are two
/// ports: one parser would end the host at the first colon, another at the last.
pub(super) fn is_host(text: &[u8]) -> bool {
    let (host, after) = match text {
        [b'[', address @ ..] => match memchr::memchr(b']', address) {
            Some(end) => (&address[..end], &address[end + 1..]),
            None => return false,
        },
        _ => text.split_at(memchr::memchr(b':', text).unwrap_or(text.len())),
    };
    let is_bracketed = text.starts_with(b"[");
    let may_stand = |b: &u8| is_name(*b) || (is_bracketed && *b == b':');
    let port = match after {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    port && !host.is_empty() && host.iter().all(may_stand)
}

/// Returns whether a byte may be part of a host name (RFC 3986 §3.2.2). `%` is excluded: with encoded bytes, routes
/// and rules would apply to a different host than a server that decodes them would see.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
        )
}
