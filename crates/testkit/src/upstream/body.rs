//! Bodies of responses, and the corresponding responses.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::header::TRAILER;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};

use crate::pattern;

/// The body of every response.
pub(super) type Body = BoxBody<Bytes, io::Error>;

/// Returns a body sent at once.
pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed()
}

/// Returns a response whose body has no length and is followed by trailers.
pub(super) fn with_trailers(bytes: Bytes, trailers: HeaderMap) -> Response<Body> {
    // In HTTP/1.1 hyper sends only trailers that the head announces.
    let names: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
    let announced = HeaderValue::from_str(&names.join(", ")).expect("names of headers");
    let mut response = Response::new(frames(stream::iter([
        Ok(Frame::data(bytes)),
        Ok(Frame::trailers(trailers)),
    ])));
    response.headers_mut().insert(TRAILER, announced);
    response
}

/// Returns the response of `/trailers`.
pub(super) fn example_with_trailers() -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", HeaderValue::from_static("42"));
    with_trailers(Bytes::from_static(b"a body with trailers"), trailers)
}

/// Returns `count` pieces of the pattern of 10 bytes, each after `pause`.
pub(super) fn drip(count: u64, pause: Duration) -> Body {
    const PIECE: u64 = 10;
    paced(count, pause, |n| pattern::piece(n * PIECE, PIECE))
}

/// Returns `count` server-sent events, each after `pause`.
pub(super) fn events(count: u64, pause: Duration) -> Body {
    paced(count, pause, |n| {
        format!("id: {n}\ndata: event {n}\n\n").into()
    })
}

/// Returns `length` bytes of the pattern, then nothing and no end.
pub(super) fn stalling(length: u64) -> Body {
    let start = Frame::data(pattern::piece(0, length));
    frames(stream::iter([Ok(start)]).chain(stream::pending()))
}

/// Returns 10 bytes, time to send them, then an error, which makes hyper close the connection.
pub(super) fn breaking() -> Body {
    let start = Frame::data(pattern::piece(0, 10));
    frames(stream::iter([Ok(start)]).chain(stream::once(async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Err(io::ErrorKind::ConnectionAborted.into())
    })))
}

fn paced(
    count: u64,
    pause: Duration,
    piece: impl Fn(u64) -> Bytes + Clone + Send + Sync + 'static,
) -> Body {
    frames(stream::iter(0..count).then(move |n| {
        let piece = piece.clone();
        async move {
            tokio::time::sleep(pause).await;
            Ok(Frame::data(piece(n)))
        }
    }))
}

fn frames(stream: impl Stream<Item = io::Result<Frame<Bytes>>> + Send + Sync + 'static) -> Body {
    BodyExt::boxed(StreamBody::new(stream))
}
