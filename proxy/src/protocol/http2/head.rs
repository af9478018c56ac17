//! Converts a field block to a request or to trailers (RFC 9113, sections 8.1 to 8.3 and 8.5).
//!
//! A block is always decoded to its end, because later blocks refer to it; errors in its fields affect only its
//! message.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};

use super::hpack::{self, Decoder, FIELDS, Line, Name, Space};
use super::reason::Malformed;
use crate::protocol::fields::{CONNECTION_FIELDS, Fields, Known, Span};
use crate::protocol::http1::{self, HeadError, Limits, Target};
use crate::protocol::message::Request;
use crate::protocol::streams::ResponseHead;

/// Reason why a message is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unfit {
    /// The message is malformed by the rules of HTTP/2; its stream is reset.
    Malformed,
    /// The message is invalid by the rules of HTTP; the response is an error.
    Refused(HeadError),
}

impl From<HeadError> for Unfit {
    fn from(error: HeadError) -> Self {
        Self::Refused(error)
    }
}

type Fit<T> = Result<T, Unfit>;

/// A request and the length of its body; `None` if the length is unknown.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) request: Request,
    pub(super) length: Option<u64>,
}

impl Head {
    /// Returns a copy that is kept for long: its buffers have no room for further fields.
    pub(super) fn kept(&self) -> Self {
        let Request {
            method,
            target,
            version,
            fields,
        } = &self.request;
        Self {
            request: Request {
                method: method.clone(),
                target: *target,
                version: *version,
                fields: fields.kept(),
            },
            length: self.length,
        }
    }
}

/// Decodes the head of a request; `end` is true if there is no body.
///
/// # Errors
/// If the block cannot be decoded; the connection cannot continue.
pub(super) fn request(
    hpack: &mut Decoder,
    block: &[u8],
    limits: Limits,
    end: bool,
) -> Result<Fit<Head>, Malformed> {
    let read = read(hpack, block, limits, Reading::take)?;
    Ok(read.and_then(|reading| reading.finish(end)))
}

/// Decodes the fields of a head; `take` takes each of them, until it rejects one.
fn read(
    hpack: &mut Decoder,
    mut block: &[u8],
    limits: Limits,
    mut take: impl FnMut(&mut Reading, &Line) -> Fit<()>,
) -> Result<Fit<Reading>, Malformed> {
    hpack.begin(&mut block)?;
    let mut reading = Reading::new(limits);
    let mut unfit = None;
    loop {
        let space = match unfit {
            None => Space::Left(reading.left),
            Some(_) => Space::None,
        };
        let Some(line) = hpack.next(&mut block, reading.fields.text_mut(), space)? else {
            break;
        };
        if unfit.is_none() {
            unfit = take(&mut reading, &line).err();
        }
    }
    reading.fields.end_head();
    Ok(unfit.map_or(Ok(reading), Err))
}

/// A partially decoded head.
struct Reading {
    fields: Fields,
    method: Option<Method>,
    path: Option<Span>,
    authority: Option<Span>,
    scheme: bool,
    /// Whether a regular field, which is not a pseudo-header field, was decoded.
    regular: bool,
    /// Number of bytes that further fields may have.
    left: usize,
    /// Number of further fields that are allowed.
    places: usize,
}

impl Reading {
    fn new(limits: Limits) -> Self {
        Self {
            fields: Fields::for_head(),
            method: None,
            path: None,
            authority: None,
            scheme: false,
            regular: false,
            left: limits.bytes,
            places: limits.headers,
        }
    }

    /// Takes a field of a response, whose only pseudo-header field is `:status`.
    fn take_of_response(&mut self, line: &Line, status: &mut Option<StatusCode>) -> Fit<()> {
        let line = &without_blanks(*line, |span| self.fields.slice(span));
        self.count(line)?;
        match line.name {
            Name::Field(known) => self.field(known, line),
            Name::Status if !self.regular && status.is_none() => {
                let code = match (line.number, line.spans) {
                    (number @ 8..=14, _) => FIELDS[number - 1].1.as_bytes(),
                    (_, Some((_, value))) => self.fields.slice(value),
                    (_, None) => return Err(Unfit::Malformed),
                };
                let code = StatusCode::from_bytes(code).map_err(|_| Unfit::Malformed)?;
                *status = Some(code);
                // Section 8.6: HTTP/2 has no upgrade.
                once(code != StatusCode::SWITCHING_PROTOCOLS)
            }
            _ => Err(Unfit::Malformed),
        }
    }

    /// Counts a field towards the limit, and checks its bytes.
    fn count(&mut self, line: &Line) -> Fit<()> {
        let left = self.left.checked_sub(line.size);
        self.left = left.ok_or(HeadError::TooLarge)?;
        once(line.valid)
    }

    fn take(&mut self, line: &Line) -> Fit<()> {
        self.count(line)?;
        if let Name::Field(known) = line.name {
            return self.field(known, line);
        }
        if self.regular {
            return Err(Unfit::Malformed);
        }
        match line.name {
            Name::Method => {
                let method = match (line.number, line.spans) {
                    (2, _) => Method::GET,
                    (3, _) => Method::POST,
                    (_, Some((_, value))) => Method::from_bytes(self.fields.slice(value))
                        .map_err(|_| Unfit::Malformed)?,
                    (_, None) => return Err(Unfit::Malformed),
                };
                once(self.method.replace(method).is_none())
            }
            Name::Scheme => {
                let named = matches!(line.number, 6 | 7);
                let is_scheme = |(_, value)| is_scheme(self.fields.slice(value));
                let first = !std::mem::replace(&mut self.scheme, true);
                once(first && (named || line.spans.is_some_and(is_scheme)))
            }
            Name::Path => once(set(&mut self.path, line)),
            Name::Authority => once(set(&mut self.authority, line)),
            // A response pseudo-header field, or an unknown one.
            Name::Field(_) | Name::Malformed | Name::Status => Err(Unfit::Malformed),
        }
    }

    fn field(&mut self, known: Known, line: &Line) -> Fit<()> {
        self.regular = true;
        let places = self.places.checked_sub(1);
        self.places = places.ok_or(HeadError::TooManyHeaders)?;
        let (name, value) = line.spans.ok_or(Unfit::Malformed)?;
        check_field(known, self.fields.slice(value))?;
        self.fields.push_line(known, name, value);
        Ok(())
    }

    fn finish(self, end: bool) -> Fit<Head> {
        let Self {
            mut fields,
            method,
            path,
            authority,
            scheme,
            ..
        } = self;
        let method = method.ok_or(Unfit::Malformed)?;
        let authority_text = authority.map(|authority| fields.slice(authority));
        if authority_text.is_some_and(|authority| !is_authority(authority)) {
            return Err(Unfit::Malformed);
        }
        let mut target = if method == Method::CONNECT {
            if scheme || path.is_some() || authority.is_none() {
                return Err(Unfit::Malformed);
            }
            Target::default()
        } else {
            let path = path.filter(|_| scheme).ok_or(Unfit::Malformed)?;
            let text = fields.slice(path);
            let asterisk = text == b"*";
            if !asterisk && !is_path(text) {
                return Err(Unfit::Malformed);
            }
            http1::check_authority(authority_text, &fields)?;
            // Section 8.3.1: for OPTIONS only.
            if asterisk && method != Method::OPTIONS {
                return Err(HeadError::Target.into());
            }
            Target::origin(text, path.start as usize)
        };
        target.authority = authority;
        let length = http1::settle_length(&mut fields).map_err(|_| Unfit::Malformed)?;
        if end && !matches!(length, None | Some(0)) {
            return Err(Unfit::Malformed);
        }
        let request = Request {
            method,
            target,
            version: Version::HTTP_2,
            fields,
        };
        Ok(Head { request, length })
    }
}

/// Decodes the head of a response.
///
/// # Errors
/// If the block cannot be decoded; the connection cannot continue.
pub(super) fn response(
    hpack: &mut Decoder,
    block: &[u8],
    limits: Limits,
) -> Result<Fit<ResponseHead>, Malformed> {
    let mut status = None;
    let read = read(hpack, block, limits, |reading, line| {
        reading.take_of_response(line, &mut status)
    })?;
    Ok(read.and_then(|Reading { mut fields, .. }| {
        match (status, http1::settle_length(&mut fields)) {
            (Some(status), Ok(length)) => Ok(ResponseHead {
                status,
                fields,
                length,
            }),
            (None, _) => Err(Unfit::Malformed),
            (_, Err(error)) => Err(error.into()),
        }
    }))
}

/// Removes whitespace at the ends of a value. HTTP/2 does not allow it, but servers send it that do not use the value
/// themselves, and no recipient of the forwarded value depends on it.
fn without_blanks<'t>(line: Line, text: impl Fn(Span) -> &'t [u8]) -> Line {
    match line.spans {
        Some((name, value)) if !line.valid => {
            let all = text(value);
            let start = all.len() - all.trim_ascii_start().len();
            let kept = all.trim_ascii();
            Line {
                valid: hpack::is_value(kept),
                spans: Some((name, Span::new(value.start as usize + start, kept.len()))),
                ..line
            }
        }
        _ => line,
    }
}

/// Decodes trailers, of a client or of a server.
///
/// # Errors
/// If the block cannot be decoded; the connection cannot continue.
pub(super) fn trailers(
    hpack: &mut Decoder,
    mut block: &[u8],
    limits: Limits,
    of_server: bool,
) -> Result<Fit<HeaderMap>, Malformed> {
    hpack.begin(&mut block)?;
    let mut text = Vec::new();
    let mut left = limits.bytes;
    let mut trailers = Ok(HeaderMap::new());
    loop {
        let space = match trailers {
            Ok(_) => Space::Left(left),
            Err(_) => Space::None,
        };
        let Some(line) = hpack.next(&mut block, &mut text, space)? else {
            break;
        };
        if let Ok(map) = &mut trailers {
            left = left.saturating_sub(line.size);
            let line = match of_server {
                // It comes too late to have an effect, and is left out.
                true if line.name == Name::Field(Known::ContentLength) => {
                    text.clear();
                    continue;
                }
                true => without_blanks(line, |span| part(&text, span)),
                false => line,
            };
            if let Err(unfit) = trailer(&line, &text, limits, map) {
                trailers = Err(unfit);
            }
        }
        text.clear();
    }
    Ok(trailers.map(|mut trailers| {
        http1::filter_trailers(&mut trailers);
        trailers
    }))
}

fn part(text: &[u8], span: Span) -> &[u8] {
    let part = text.get(span.start as usize..span.end as usize);
    part.unwrap_or_default()
}

fn trailer(line: &Line, text: &[u8], limits: Limits, trailers: &mut HeaderMap) -> Fit<()> {
    let Name::Field(known) = line.name else {
        return Err(Unfit::Malformed);
    };
    if !line.valid {
        return Err(Unfit::Malformed);
    }
    let (name, value) = line.spans.ok_or(HeadError::TooLarge)?;
    if trailers.len() >= limits.headers {
        return Err(HeadError::TooManyHeaders.into());
    }
    let (name, value) = (part(text, name), part(text, value));
    check_field(known, value)?;
    // The length must be announced before the content (RFC 9110 §6.5.1). Peers reject it in trailers, too.
    once(known != Known::ContentLength)?;
    let name = HeaderName::from_bytes(name).map_err(|_| Unfit::Malformed)?;
    let value = HeaderValue::from_bytes(value).map_err(|_| Unfit::Malformed)?;
    trailers.append(name, value);
    Ok(())
}

/// Rejects connection-specific fields. They have no meaning in HTTP/2, and a recipient that applied them would see a
/// different message (section 8.2.2).
fn check_field(known: Known, value: &[u8]) -> Fit<()> {
    let may_stand = match known {
        Known::Te => value == b"trailers",
        known => !CONNECTION_FIELDS.contains(&known),
    };
    once(may_stand)
}

fn once(fits: bool) -> Fit<()> {
    fits.then_some(()).ok_or(Unfit::Malformed)
}

/// Stores a value; returns false if there is no value or it is a repetition.
fn set(place: &mut Option<Span>, line: &Line) -> bool {
    let value = line.spans.map(|(_, value)| value);
    value.is_some_and(|value| place.replace(value).is_none())
}

/// Returns whether a text is a scheme (RFC 3986, section 3.1).
fn is_scheme(text: &[u8]) -> bool {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(inside)
}

/// Returns whether a text is syntactically a host and port (RFC 3986, section 3.2). If it is, a later check reports
/// what is not allowed.
fn is_authority(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| AUTHORITY[usize::from(*byte)])
}

/// Returns whether a text is a path with an optional query, but without a fragment (section 8.3.1). As in an HTTP/1.1
/// request line, some characters that should be encoded are accepted.
pub(super) fn is_path(text: &[u8]) -> bool {
    text.first() == Some(&b'/') && text.iter().all(|byte| PATH[usize::from(*byte)])
}

static AUTHORITY: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < allowed.len() {
        allowed[byte] = matches!(
            byte as u8,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'('
                | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@' | b'[' | b']' | b'%'
        );
        byte += 1;
    }
    allowed
};

static PATH: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < allowed.len() {
        let delimiter = matches!(byte as u8, b'#' | b'<' | b'>' | b'`');
        allowed[byte] = byte > 0x20 && byte != 0x7f && !delimiter;
        byte += 1;
    }
    allowed
};

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
