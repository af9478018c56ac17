//! Heads of HTTP/1.1 messages: parsing and encoding (RFC 9112 §2–§6).
//!
//! httparse splits lines; this file decides what a head means: framing, persistence, host. Where the
//! RFC lets a recipient be lenient about framing, it is strict.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Uri, Version};

use super::framing::Framing;

/// More headers than any limit that can be configured.
const MAX_HEADERS: usize = 512;

/// Bounds of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes, request line and final CRLF included.
    pub(crate) bytes: usize,
    /// Header fields.
    pub(crate) headers: usize,
}

/// What is wrong with a head.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HeadError {
    /// Some servers take it for a line end, others do not.
    #[error("a line ends with a bare LF")]
    BareLf,
    /// Not a number, or several that differ.
    #[error("malformed content-length")]
    ContentLength,
    /// Which of them frames the body is a matter of taste: request smuggling.
    #[error("both content-length and transfer-encoding")]
    ContentLengthAndTransferEncoding,
    /// RFC 9112 §3.2.
    #[error("missing, repeated or malformed host header")]
    Host,
    /// Not HTTP.
    #[error("malformed head")]
    Malformed,
    /// RFC 9112 §3.2.
    #[error("malformed request target")]
    Target,
    /// `max_header_bytes`.
    #[error("head larger than the limit")]
    TooLarge,
    /// `max_headers`.
    #[error("more headers than the limit")]
    TooManyHeaders,
    /// Other codings are not implemented.
    #[error("transfer-encoding is not chunked alone")]
    TransferEncoding,
    /// Neither HTTP/1.0 nor HTTP/1.1.
    #[error("HTTP version is neither 1.0 nor 1.1")]
    Version,
}

/// A request's head.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) framing: Framing,
    /// The client wants the connection kept.
    pub(crate) keep_alive: bool,
}

/// A response's head.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) framing: Framing,
    /// The server keeps the connection.
    pub(crate) keep_alive: bool,
}

/// Parses a request head at the start of `buf`; `None` = more bytes are needed. The second value
/// is its length.
pub(crate) fn parse_request(
    buf: &[u8],
    limits: Limits,
) -> Result<Option<(RequestHead, usize)>, HeadError> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    let slots = &mut slots[..limits.headers.min(MAX_HEADERS)];
    let len = match parsed.parse_with_uninit_headers(buf, slots).map_err(head_error)? {
        httparse::Status::Complete(len) => len,
        httparse::Status::Partial => return partial(buf, limits),
    };
    check_bytes(&buf[..len], limits)?;
    let (Some(method), Some(path), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(HeadError::Malformed);
    };
    let raw = Bytes::copy_from_slice(&buf[..len]);
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| HeadError::Malformed)?;
    let target = raw.slice(offset(buf, path.as_bytes())..offset(buf, path.as_bytes()) + path.len());
    let uri = parse_target(&method, target)?;
    let version = version(minor);
    let (mut headers, seen) = collect(buf, &raw, parsed.headers)?;
    check_host(&headers, &seen, version)?;
    let framing = request_framing(&mut headers, &seen, version)?;
    let keep_alive = keep_alive(&headers, &seen, version);
    let head = RequestHead { method, uri, version, headers, framing, keep_alive };
    Ok(Some((head, len)))
}

/// Parses a response head; `method` is the request's.
pub(crate) fn parse_response(
    buf: &[u8],
    limits: Limits,
    method: &Method,
) -> Result<Option<(ResponseHead, usize)>, HeadError> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let slots = &mut slots[..limits.headers.min(MAX_HEADERS)];
    let mut config = httparse::ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(false);
    let status = config
        .parse_response_with_uninit_headers(&mut parsed, buf, slots)
        .map_err(head_error)?;
    let len = match status {
        httparse::Status::Complete(len) => len,
        httparse::Status::Partial => return partial(buf, limits),
    };
    check_bytes(&buf[..len], limits)?;
    let (Some(code), Some(minor)) = (parsed.code, parsed.version) else {
        return Err(HeadError::Malformed);
    };
    let status = StatusCode::from_u16(code).map_err(|_| HeadError::Malformed)?;
    let raw = Bytes::copy_from_slice(&buf[..len]);
    let version = version(minor);
    let (mut headers, seen) = collect(buf, &raw, parsed.headers)?;
    let framing = response_framing(&mut headers, &seen, status, method)?;
    let keep_alive = framing != Framing::Close && keep_alive(&headers, &seen, version);
    Ok(Some((ResponseHead { status, headers, framing, keep_alive }, len)))
}

/// Parses a trailer section including its final empty line.
pub(crate) fn parse_trailers(buf: &[u8]) -> Result<Option<(HeaderMap, usize)>, HeadError> {
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let (len, parsed) = match httparse::parse_headers(buf, &mut slots).map_err(head_error)? {
        httparse::Status::Complete(done) => done,
        httparse::Status::Partial => return Ok(None),
    };
    if has_bare_lf(&buf[..len]) {
        return Err(HeadError::BareLf);
    }
    let raw = Bytes::copy_from_slice(&buf[..len]);
    let mut trailers = collect(buf, &raw, parsed)?.0;
    // RFC 9110 §6.5.1: fields that frame, route or authenticate a message must not come late.
    for name in FORBIDDEN_TRAILERS {
        trailers.remove(name);
    }
    Ok(Some((trailers, len)))
}

const FORBIDDEN_TRAILERS: [HeaderName; 8] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

fn partial<T>(buf: &[u8], limits: Limits) -> Result<Option<T>, HeadError> {
    if buf.len() >= limits.bytes { Err(HeadError::TooLarge) } else { Ok(None) }
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

/// httparse takes a bare LF for a line end; some servers do not, so it is refused.
fn has_bare_lf(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

fn head_error(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::TooManyHeaders => HeadError::TooManyHeaders,
        httparse::Error::Version => HeadError::Version,
        _ => HeadError::Malformed,
    }
}

fn version(minor: u8) -> Version {
    if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 }
}

/// `part` is a subslice of `whole`.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

/// Which of the headers that decide framing and persistence were there: most messages have few of
/// them, and a look-up in the map costs more than this note.
#[derive(Default)]
struct Seen {
    connection: bool,
    content_length: bool,
    host: bool,
    transfer_encoding: bool,
}

fn collect(
    buf: &[u8],
    raw: &Bytes,
    parsed: &[httparse::Header<'_>],
) -> Result<(HeaderMap, Seen), HeadError> {
    let mut headers = HeaderMap::with_capacity(parsed.len() + EXTRA_HEADERS);
    let mut seen = Seen::default();
    for field in parsed {
        let name =
            HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| HeadError::Malformed)?;
        let start = offset(buf, field.value);
        let value = HeaderValue::from_maybe_shared(raw.slice(start..start + field.value.len()))
            .map_err(|_| HeadError::Malformed)?;
        match name {
            header::CONNECTION => seen.connection = true,
            header::CONTENT_LENGTH => seen.content_length = true,
            header::HOST => {
                if seen.host {
                    return Err(HeadError::Host);
                }
                seen.host = true;
            }
            header::TRANSFER_ENCODING => seen.transfer_encoding = true,
            _ => {}
        }
        headers.append(name, value);
    }
    Ok((headers, seen))
}

/// Room for what the proxy adds, so that the map does not grow again.
const EXTRA_HEADERS: usize = 6;

fn parse_target(method: &Method, target: Bytes) -> Result<Uri, HeadError> {
    let uri = Uri::from_maybe_shared(target).map_err(|_| HeadError::Target)?;
    let well_formed = if method == Method::CONNECT {
        uri.authority().is_some() && uri.scheme().is_none() && uri.path_and_query().is_none()
    } else if uri.scheme().is_some() {
        true
    } else {
        // Origin form, or `*` for OPTIONS.
        uri.authority().is_none() && (uri.path().starts_with('/') || method == Method::OPTIONS)
    };
    if well_formed { Ok(uri) } else { Err(HeadError::Target) }
}

fn check_host(headers: &HeaderMap, seen: &Seen, version: Version) -> Result<(), HeadError> {
    if !seen.host {
        return if version == Version::HTTP_11 { Err(HeadError::Host) } else { Ok(()) };
    }
    let host = headers.get(header::HOST).map_or(&b""[..], HeaderValue::as_bytes);
    let fine = host.iter().all(|&b| b.is_ascii_graphic() && !matches!(b, b'/' | b'?' | b'#' | b'@'));
    if fine { Ok(()) } else { Err(HeadError::Host) }
}

fn request_framing(
    headers: &mut HeaderMap,
    seen: &Seen,
    version: Version,
) -> Result<Framing, HeadError> {
    if seen.transfer_encoding {
        if seen.content_length {
            return Err(HeadError::ContentLengthAndTransferEncoding);
        }
        if version == Version::HTTP_10 || !is_chunked_alone(headers) {
            return Err(HeadError::TransferEncoding);
        }
        headers.remove(header::TRANSFER_ENCODING);
        return Ok(Framing::Chunked);
    }
    if seen.content_length {
        return Ok(Framing::Length(content_length(headers)?));
    }
    Ok(Framing::EMPTY)
}

fn response_framing(
    headers: &mut HeaderMap,
    seen: &Seen,
    status: StatusCode,
    method: &Method,
) -> Result<Framing, HeadError> {
    let bodiless = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || *method == Method::HEAD
        || (*method == Method::CONNECT && status.is_success());
    let framing = if seen.transfer_encoding {
        if !is_chunked_alone(headers) {
            return Err(HeadError::TransferEncoding);
        }
        headers.remove(header::TRANSFER_ENCODING);
        if seen.content_length {
            return Err(HeadError::ContentLengthAndTransferEncoding);
        }
        Framing::Chunked
    } else if seen.content_length {
        Framing::Length(content_length(headers)?)
    } else {
        Framing::Close
    };
    Ok(if bodiless { Framing::EMPTY } else { framing })
}

fn is_chunked_alone(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::TRANSFER_ENCODING).iter();
    let only = values.next().is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"chunked"));
    only && values.next().is_none()
}

/// The one value of `content-length`. Repeated equal fields are merged (RFC 9110 §8.6); anything
/// else is an error.
fn content_length(headers: &mut HeaderMap) -> Result<u64, HeadError> {
    let mut length = None;
    let mut fields = 0;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        fields += 1;
        let value = parse_digits(value.as_bytes()).ok_or(HeadError::ContentLength)?;
        if length.is_some_and(|seen| seen != value) {
            return Err(HeadError::ContentLength);
        }
        length = Some(value);
    }
    let length = length.ok_or(HeadError::ContentLength)?;
    if fields > 1 {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(length)
}

fn parse_digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |n, b| n * 10 + u64::from(b - b'0')))
}

fn keep_alive(headers: &HeaderMap, seen: &Seen, version: Version) -> bool {
    let token = |wanted| seen.connection && has_token(headers, &header::CONNECTION, wanted);
    match version {
        Version::HTTP_10 => token("keep-alive") && !token("close"),
        _ => !token("close"),
    }
}

/// Whether a comma-separated header holds a token (ASCII case ignored).
pub(crate) fn has_token(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    tokens(headers, name).any(|token| token.eq_ignore_ascii_case(wanted))
}

/// The tokens of a comma-separated header.
pub(crate) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// Appends `METHOD target HTTP/1.1`, the host and the headers, without the final empty line.
pub(crate) fn encode_request(method: &Method, uri: &Uri, headers: &HeaderMap, out: &mut BytesMut) {
    out.reserve(head_size_hint(headers) + uri.path().len());
    out.extend_from_slice(method.as_str().as_bytes());
    out.extend_from_slice(b" ");
    match uri.path_and_query() {
        Some(target) => out.extend_from_slice(target.as_str().as_bytes()),
        None => out.extend_from_slice(b"/"),
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    encode_headers(headers, out);
}

/// Appends a status line and headers, without the final empty line.
pub(crate) fn encode_response(status: StatusCode, headers: &HeaderMap, out: &mut BytesMut) {
    out.reserve(head_size_hint(headers));
    if status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.extend_from_slice(b" ");
        out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    encode_headers(headers, out);
}

/// Appends header lines.
pub(crate) fn encode_headers(headers: &HeaderMap, out: &mut BytesMut) {
    for (name, value) in headers {
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

fn head_size_hint(headers: &HeaderMap) -> usize {
    64 + headers.len() * 32
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
