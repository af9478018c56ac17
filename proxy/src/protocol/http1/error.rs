//! Errors of parsing a head.

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HeadError {
    /// Some servers accept it as a line end, others do not.
    #[error("a line ends with a bare LF")]
    BareLf,
    /// A field that concerns one connection of HTTP/1.1, on a connection that requests share.
    #[error("a connection-specific field (`connection`, `upgrade`, …) in a protocol that has none")]
    ConnectionField,
    /// Not a number, or several that differ.
    #[error("malformed content-length")]
    ContentLength,
    /// Recipients disagree on which of them frames the body: request smuggling.
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
