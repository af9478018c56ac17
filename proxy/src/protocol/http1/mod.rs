//! HTTP/1.1 on the wire: heads, body framing, reading and writing.
//!
//! hyper is not used because it does not meet four requirements: an idle connection must be able to release
//! everything but its socket; informational (1xx) responses must be forwarded; a request must not move between tasks
//! (the endpoint's socket is polled by the client's task); and input that two parsers could read differently must be
//! rejected. httparse tokenizes heads. The connections themselves are in [`crate::http`] (client side) and
//! [`crate::upstream`] (endpoint side).

mod error;
mod framing;
mod head;
mod scratch;
mod target;
mod trailers;
mod write;

pub use error::HeadError;
pub use framing::FramingError;
pub(crate) use framing::{Decoder, Piece};
pub(crate) use head::{
    Framing, Limits, RequestHead, ResponseHead, check_authority, encode_header, encode_request,
    encode_response, encode_trailers, parse_request, parse_response, parse_trailers,
    set_content_length, settle_length,
};
pub(crate) use scratch::{poll_read, poll_read_body, poll_read_some};
pub(crate) use target::Target;
pub(crate) use trailers::filter as filter_trailers;
pub(crate) use write::Output;
