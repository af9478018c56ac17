//! Errors in parsing a message head.

/// Error in parsing a message head.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HeadError {
    /// A line ends in LF without CR, which some servers accept and others do not.
    #[error("a line ends with a bare LF")]
    BareLf,
    /// A field that concerns one HTTP/1.1 connection was sent on a connection that requests share.
    #[error("a connection-specific field (`connection`, `upgrade`, …) in a protocol that has none")]
    ConnectionField,
    /// `content-length` is not a number, or occurs several times with different values.
    #[error("malformed content-length")]
    ContentLength,
    /// Both fields are present. Recipients disagree on which one frames the body, which allows request smuggling.
    #[error("both content-length and transfer-encoding")]
    ContentLengthAndTransferEncoding,
    /// `host` is missing, invalid or repeated (RFC 9112 §3.2).
    #[error("missing, repeated or malformed host header")]
    Host,
    /// The input is not HTTP.
    #[error("malformed head")]
    Malformed,
    /// The request target is invalid (RFC 9112 §3.2).
    #[error("malformed request target")]
    Target,
    /// The head is longer than `max_header_bytes`.
    #[error("head larger than the limit")]
    TooLarge,
    /// The head has more fields than `max_headers`.
    #[error("more headers than the limit")]
    TooManyHeaders,
    /// `transfer-encoding` is other than `chunked`; other codings are not implemented.
    #[error("transfer-encoding is not chunked alone")]
    TransferEncoding,
    /// The version is neither HTTP/1.0 nor HTTP/1.1.
    #[error("HTTP version is neither 1.0 nor 1.1")]
    Version,
}
