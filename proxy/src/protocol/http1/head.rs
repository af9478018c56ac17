//! Parsing and encoding of the heads of HTTP/1.1 messages (RFC 9112 §2–§6).
//!
//! httparse splits the lines; this module determines the meaning of a head: framing, persistence, host. Where the RFC
//! allows a recipient to be lenient about framing, this module is strict.

use std::mem::MaybeUninit;

use bytes::BytesMut;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};

use super::error::HeadError;
use super::target::{Target, is_host, parse_target};
use crate::protocol::fields::{Fields, Known, Span};

/// Maximum number of header fields that are parsed; more than any configurable limit.
const MAX_HEADERS: usize = 512;

/// Limits of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum length in bytes, including the request line and the final CRLF.
    pub(crate) bytes: usize,
    /// Maximum number of header fields.
    pub(crate) headers: usize,
}

/// How the end of a body is determined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Framing {
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The sender closes the connection (responses only).
    Close,
    /// The body has this length in bytes; 0 means no body.
    Length(u64),
}

impl Framing {
    pub(crate) const EMPTY: Self = Self::Length(0);

    pub(crate) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }
}

/// The head of a request.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) target: Target,
    pub(crate) version: Version,
    pub(crate) fields: Fields,
    pub(crate) framing: Framing,
    /// Whether the client wants to keep the connection open.
    pub(crate) keep_alive: bool,
}

/// The head of a response.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) fields: Fields,
    pub(crate) framing: Framing,
    /// Whether the server keeps the connection open.
    pub(crate) keep_alive: bool,
}

/// Parses a request head at the start of `buf`; `None` if more bytes are needed. The second value is the length of
/// the head.
pub(crate) fn parse_request(
    buf: &[u8],
    limits: Limits,
) -> Result<Option<(RequestHead, usize)>, HeadError> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    let slots = &mut slots[..limits.headers.min(MAX_HEADERS)];
    let len = match parsed
        .parse_with_uninit_headers(buf, slots)
        .map_err(|error| head_error_within(error, buf, limits))?
    {
        httparse::Status::Complete(len) => len,
        httparse::Status::Partial => return partial(buf, limits),
    };
    check_bytes(&buf[..len], limits)?;
    let (Some(method), Some(path), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(HeadError::Malformed);
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| HeadError::Malformed)?;
    let target = parse_target(&method, path.as_bytes(), offset(buf, path.as_bytes()))?;
    let version = version(minor);
    let mut fields = collect(buf, len, parsed.headers);
    check_host(&fields, version)?;
    let framing = request_framing(&mut fields, version)?;
    let keep_alive = keep_alive(&fields, version);
    let head = RequestHead {
        method,
        target,
        version,
        fields,
        framing,
        keep_alive,
    };
    Ok(Some((head, len)))
}

/// Parses a response head; `method` is the method of the request.
pub(crate) fn parse_response(
    buf: &[u8],
    limits: Limits,
    method: &Method,
) -> Result<Option<(ResponseHead, usize)>, HeadError> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let slots = &mut slots[..limits.headers.min(MAX_HEADERS)];
    let config = httparse::ParserConfig::default();
    let status = config
        .parse_response_with_uninit_headers(&mut parsed, buf, slots)
        .map_err(|error| head_error_within(error, buf, limits))?;
    let len = match status {
        httparse::Status::Complete(len) => len,
        httparse::Status::Partial => return partial(buf, limits),
    };
    check_bytes(&buf[..len], limits)?;
    let (Some(code), Some(minor)) = (parsed.code, parsed.version) else {
        return Err(HeadError::Malformed);
    };
    let status = StatusCode::from_u16(code).map_err(|_| HeadError::Malformed)?;
    let version = version(minor);
    let mut fields = collect(buf, len, parsed.headers);
    let framing = response_framing(&mut fields, status, method)?;
    let keep_alive = framing != Framing::Close && keep_alive(&fields, version);
    Ok(Some((
        ResponseHead {
            status,
            fields,
            framing,
            keep_alive,
        },
        len,
    )))
}

/// Parses a trailer section including its final empty line.
pub(crate) fn parse_trailers(buf: &[u8]) -> Result<Option<(HeaderMap, usize)>, HeadError> {
    let mut slots = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let (len, parsed) = match httparse::parse_headers(buf, &mut slots).map_err(head_error)? {
        httparse::Status::Complete(done) => done,
        httparse::Status::Partial => return Ok(None),
    };
    if has_bare_lf(&buf[..len]) {
        return Err(HeadError::BareLf);
    }
    let mut trailers = HeaderMap::with_capacity(parsed.len());
    for field in parsed {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(HeadError::Malformed);
        };
        trailers.append(name, value);
    }
    super::trailers::filter(&mut trailers);
    Ok(Some((trailers, len)))
}

const MAX_TRAILERS: usize = 64;

fn partial<T>(buf: &[u8], limits: Limits) -> Result<Option<T>, HeadError> {
    if buf.len() >= limits.bytes {
        Err(HeadError::TooLarge)
    } else {
        Ok(None)
    }
}

fn check_bytes(head: &[u8], limits: Limits) -> Result<(), HeadError> {
    if head.len() > limits.bytes {
        return Err(HeadError::TooLarge);
    }
    if has_bare_lf(head) {
        return Err(HeadError::BareLf);
    }
    Ok(())
}

/// Returns whether a line ends in LF without CR. httparse accepts this, but some servers do not, so it is rejected.
fn has_bare_lf(head: &[u8]) -> bool {
    let begins = head.first() == Some(&b'\n');
    let pairs = head.iter().zip(head.get(1..).unwrap_or_default());
    // There is no early exit, so that the compiler can compare sixteen bytes at a time.
    let bare = pairs.fold(0, |found, (&before, &byte)| {
        found | u8::from(byte == b'\n') & u8::from(before != b'\r')
    });
    begins || bare != 0
}

fn head_error(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::TooManyHeaders => HeadError::TooManyHeaders,
        httparse::Error::Version => HeadError::Version,
        _ => HeadError::Malformed,
    }
}

/// Returns the error for a head. A head whose end is not within its limit is too large, regardless of other errors in
/// the received part. Otherwise the result would depend on how much is read at once.
#[cold]
fn head_error_within(error: httparse::Error, buf: &[u8], limits: Limits) -> HeadError {
    match buf.get(..limits.bytes) {
        Some(within) if memchr::memmem::find(within, b"\r\n\r\n").is_none() => HeadError::TooLarge,
        _ => head_error(error),
    }
}

fn version(minor: u8) -> Version {
    if minor == 0 {
        Version::HTTP_10
    } else {
        Version::HTTP_11
    }
}

/// Returns the offset of `part`, a subslice of `whole`.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

fn collect(buf: &[u8], len: usize, parsed: &[httparse::Header<'_>]) -> Fields {
    let fields = parsed.iter().map(|field| {
        let name = field.name.as_bytes();
        (
            Known::of(name),
            Span::within(buf, name),
            Span::within(buf, field.value),
        )
    });
    Fields::of_head(&buf[..len], fields)
}

fn check_host(fields: &Fields, version: Version) -> Result<(), HeadError> {
    let mut hosts = fields.all(Known::Host);
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if host.is_empty() || is_host(host) => Ok(()),
        (Some(_), _) => Err(HeadError::Host),
        (None, _) if version == Version::HTTP_11 => Err(HeadError::Host),
        (None, _) => Ok(()),
    }
}

/// Checks the host of an HTTP/2 request: its authority or, without an authority, its `host` field (RFC 9113 §8.3.1).
pub(crate) fn check_authority(authority: Option<&[u8]>, fields: &Fields) -> Result<(), HeadError> {
    match authority {
        Some(authority) if is_host(authority) => Ok(()),
        Some(_) => Err(HeadError::Host),
        // Without either, a server behind this proxy would assume that the request is for its own address.
        None if fields.get(Known::Host).is_none_or(<[u8]>::is_empty) => Err(HeadError::Host),
        None => check_host(fields, Version::HTTP_2),
    }
}

/// Merges repeated `content-length` fields of an HTTP/2 request into one, because HTTP/1.1 allows only one.
pub(crate) fn settle_length(fields: &mut Fields) -> Result<Option<u64>, HeadError> {
    let present = fields.contains(Known::ContentLength);
    present.then(|| content_length(fields)).transpose()
}

fn request_framing(fields: &mut Fields, version: Version) -> Result<Framing, HeadError> {
    if fields.contains(Known::TransferEncoding) {
        if fields.contains(Known::ContentLength) {
            return Err(HeadError::ContentLengthAndTransferEncoding);
        }
        if version == Version::HTTP_10 || !is_chunked_alone(fields) {
            return Err(HeadError::TransferEncoding);
        }
        fields.remove(Known::TransferEncoding);
        return Ok(Framing::Chunked);
    }
    if fields.contains(Known::ContentLength) {
        return Ok(Framing::Length(content_length(fields)?));
    }
    Ok(Framing::EMPTY)
}

fn response_framing(
    fields: &mut Fields,
    status: StatusCode,
    method: &Method,
) -> Result<Framing, HeadError> {
    let bodiless = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || *method == Method::HEAD
        || (*method == Method::CONNECT && status.is_success());
    let framing = if fields.contains(Known::TransferEncoding) {
        if fields.contains(Known::ContentLength) {
            return Err(HeadError::ContentLengthAndTransferEncoding);
        }
        if !is_chunked_alone(fields) {
            return Err(HeadError::TransferEncoding);
        }
        fields.remove(Known::TransferEncoding);
        Framing::Chunked
    } else if fields.contains(Known::ContentLength) {
        Framing::Length(content_length(fields)?)
    } else {
        Framing::Close
    };
    Ok(if bodiless { Framing::EMPTY } else { framing })
}

fn is_chunked_alone(fields: &Fields) -> bool {
    let mut values = fields.all(Known::TransferEncoding);
    let only = values
        .next()
        .is_some_and(|value| value.eq_ignore_ascii_case(b"chunked"));
    only && values.next().is_none()
}

/// Returns the value of `content-length`. Repeated equal fields are merged (RFC 9110 §8.6); anything else is an
/// error.
fn content_length(fields: &mut Fields) -> Result<u64, HeadError> {
    let mut length = None;
    let mut repeated = false;
    for value in fields.all(Known::ContentLength) {
        let value = parse_digits(value).ok_or(HeadError::ContentLength)?;
        repeated = length.is_some();
        if length.is_some_and(|seen| seen != value) {
            return Err(HeadError::ContentLength);
        }
        length = Some(value);
    }
    let length = length.ok_or(HeadError::ContentLength)?;
    if repeated {
        set_content_length(fields, length);
    }
    Ok(length)
}

/// Sets the length of a message.
pub(crate) fn set_content_length(fields: &mut Fields, length: u64) {
    let mut digits = itoa::Buffer::new();
    fields.set(Known::ContentLength, digits.format(length).as_bytes());
}

fn parse_digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |n, b| n * 10 + u64::from(b - b'0')))
}

fn keep_alive(fields: &Fields, version: Version) -> bool {
    let token = |wanted| fields.has_token(Known::Connection, wanted);
    match version {
        Version::HTTP_10 => token("keep-alive") && !token("close"),
        _ => !token("close"),
    }
}

/// Appends `METHOD target HTTP/1.1` and the fields, without the final empty line.
pub(crate) fn encode_request(method: &Method, target: &[u8], fields: &Fields, out: &mut BytesMut) {
    out.reserve(fields.encoded_len() + 64);
    out.extend_from_slice(method.as_str().as_bytes());
    out.extend_from_slice(b" ");
    if !matches!(target.first(), Some(b'/' | b'*')) {
        out.extend_from_slice(b"/");
    }
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    fields.encode(out);
}

/// Appends a status line and the fields, without the final empty line.
pub(crate) fn encode_response(status: StatusCode, fields: &Fields, out: &mut BytesMut) {
    out.reserve(fields.encoded_len() + 64);
    if status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.extend_from_slice(b" ");
        out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    fields.encode(out);
}

/// Appends trailer lines.
pub(crate) fn encode_trailers(trailers: &HeaderMap, out: &mut BytesMut) {
    for (name, value) in trailers {
        encode_header(name.as_str().as_bytes(), value.as_bytes(), out);
    }
}

/// Appends one header line.
pub(crate) fn encode_header(name: &[u8], value: &[u8], out: &mut BytesMut) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
