//! Detects the HTTP version of a connection and serves the connection.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::BytesMut;
use maglor_config::listener::HttpProtocol;
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use super::connection::{LEAVE_AFTER, Service};
use super::phase::Phase;
use super::{http1, http2};
use crate::net::fairness;
use crate::net::io::Stream;
use crate::protocol::detect::{self, Detected};
use crate::protocol::mesh_transport;

/// Size of the first read in bytes, sufficient for most first requests.
const FIRST_READ: usize = 2048;

/// Detects the version of a connection. Returns the first phase of serving the connection; `None` if it must be closed.
pub(crate) async fn serving(stream: Stream, service: Rc<Service>) -> Option<Phase> {
    if stream.io.alpn() == Some(mesh_transport::ALPN) {
        let served = super::mesh_transport::serve(stream, service);
        return Some(Phase::last(served));
    }
    let first = version(stream, &service).await?;
    Some(match first.version {
        HttpProtocol::Http2 => Phase::last(http2::serve(first.stream, service)),
        _ => http1::serve(first.stream, first.begun, service),
    })
}

/// Result of inspecting the first bytes.
struct First {
    version: HttpProtocol,
    stream: Stream,
    /// When the first byte of the first request arrived; `None` if none of it has been read.
    begun: Option<Instant>,
}

/// Determines the version from the configuration, ALPN or the first bytes. `None` means that the connection must be
/// closed: the client has disconnected, was too slow, or uses another protocol.
async fn version(stream: Stream, service: &Service) -> Option<First> {
    let known = match (service.settings().protocol, stream.io.alpn()) {
        (HttpProtocol::Auto, Some(b"h2")) => Some(HttpProtocol::Http2),
        (HttpProtocol::Auto, Some(_)) | (HttpProtocol::Http1, _) => Some(HttpProtocol::Http1),
        (HttpProtocol::Http2, _) if stream.io.is_tls() => Some(HttpProtocol::Http2),
        (HttpProtocol::Auto | HttpProtocol::Http2, _) => None,
    };
    if let Some(version) = known {
        let begun = None;
        return Some(First {
            version,
            stream,
            begun,
        });
    }
    Box::pin(preface(stream, service)).await
}

/// Reads until the HTTP/2 preface is complete or ruled out.
///
/// Input that is neither the preface nor a line of HTTP/1 gets no response (RFC 9113, section 3.4). The connection is
/// closed here, after all input was read, so that it ends without a reset.
async fn preface(mut stream: Stream, service: &Service) -> Option<First> {
    let settings = service.settings();
    let only_http2 = settings.protocol == HttpProtocol::Http2;
    // A client that has sent nothing yet is not between two requests: the timeout of a request head applies.
    let mut deadline = Instant::now() + settings.idle_timeout.min(settings.header_timeout);
    let mut seen = BytesMut::from(std::mem::take(&mut stream.prefix));
    let mut begun = (!seen.is_empty()).then(Instant::now);
    let mut leaving = false;
    let version = loop {
        match detect::http2_preface(&seen) {
            Detected::Yes => break HttpProtocol::Http2,
            Detected::No if only_http2 || detect::other_protocol(&seen) => return None,
            Detected::No => break HttpProtocol::Http1,
            Detected::More => {
                let read = {
                    let mut more = pin!(more(&mut stream, &mut seen));
                    let read = poll_fn(|cx| match more.as_mut().poll(cx) {
                        Poll::Pending if service.is_draining() && !leaving => Poll::Ready(None),
                        read => read.map(Some),
                    });
                    tokio::time::timeout_at(deadline, read).await
                };
                let now = Instant::now();
                match read {
                    Ok(Some(Ok(1..))) => {
                        let begun = *begun.get_or_insert(now);
                        deadline = deadline.min(begun + settings.header_timeout);
                    }
                    Ok(Some(_)) => {
                        fairness::before_close().await;
                        return None;
                    }
                    // The first request may be on its way.
                    Ok(None) => {
                        leaving = true;
                        deadline = deadline.min(now + LEAVE_AFTER);
                    }
                    Err(_) if seen.is_empty() || only_http2 => return None,
                    // The HTTP/1.1 session rejects the input.
                    Err(_) => break HttpProtocol::Http1,
                }
            }
        }
    };
    stream.prefix = seen.freeze();
    Some(First {
        version,
        stream,
        begun,
    })
}

/// Reads available bytes once.
async fn more(stream: &mut Stream, seen: &mut BytesMut) -> io::Result<usize> {
    if !stream.io.is_tls() {
        // No buffer is allocated until the client sends data.
        stream.io.tcp().readable().await?;
    }
    seen.reserve(FIRST_READ);
    stream.io.read_buf(seen).await
}
