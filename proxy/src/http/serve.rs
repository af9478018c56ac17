//! Which version of HTTP a connection speaks.

use std::future::Future;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::BytesMut;
use maglor_config::listener::HttpProtocol;
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use super::connection::{LEAVE_AFTER, Service};
use super::{http1, http2};
use crate::net::fairness;
use crate::net::io::Stream;
use crate::protocol::detect::{self, Detected};
use crate::protocol::mesh_transport;

/// Most first requests fit.
const FIRST_READ: usize = 2048;

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: Stream, service: Rc<Service>) {
    let serving = Box::pin(start(stream, service)).await;
    if let Some(serving) = serving {
        serving.await;
    }
}

/// What serves the connection from now on.
async fn start(stream: Stream, service: Rc<Service>) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
    if stream.io.alpn() == Some(mesh_transport::ALPN) {
        return Some(Box::pin(super::mesh_transport::serve(stream.io, service)));
    }
    let first = version(stream, &service).await?;
    Some(match first.version {
        HttpProtocol::Http2 => Box::pin(http2::serve(first.stream, service)),
        _ => Box::pin(http1::serve(first.stream, first.begun, service)),
    })
}

/// What the first bytes have shown.
struct First {
    version: HttpProtocol,
    stream: Stream,
    /// When the first request began to come, if some of it has been read.
    begun: Option<Instant>,
}

/// By configuration, ALPN or the first bytes; `None` = to be closed: the client left, was too slow,
/// or speaks something else.
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

/// Reads until the HTTP/2 preface is there or cannot be.
///
/// What is neither this nor a line of HTTP/1 gets no answer (RFC 9113, section 3.4): closed here,
/// where all of it has been read, it ends in order and not with a reset.
async fn preface(mut stream: Stream, service: &Service) -> Option<First> {
    let settings = service.settings();
    let only_http2 = settings.protocol == HttpProtocol::Http2;
    // A client that has said nothing yet is not idle between two requests: it has what a head has.
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
                    // A first request may be on its way.
                    Ok(None) => {
                        leaving = true;
                        deadline = deadline.min(now + LEAVE_AFTER);
                    }
                    Err(_) if seen.is_empty() || only_http2 => return None,
                    // To be refused: an HTTP/1.1 session knows how.
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

/// Reads once.
async fn more(stream: &mut Stream, seen: &mut BytesMut) -> io::Result<usize> {
    if !stream.io.is_tls() {
        // No buffer for a client that says nothing.
        stream.io.tcp().readable().await?;
    }
    seen.reserve(FIRST_READ);
    stream.io.read_buf(seen).await
}
