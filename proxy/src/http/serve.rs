//! Which version of HTTP a connection speaks.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use bytes::BytesMut;
use maglor_config::listener::HttpProtocol;
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use super::service::Service;
use super::{http1, http2};
use crate::detect::{self, Detected};
use crate::io::Stream;

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
    Some(match version(stream, &service).await? {
        (HttpProtocol::Http2, stream) => Box::pin(http2::serve(stream, service)),
        (_, stream) => Box::pin(http1::serve(stream, service)),
    })
}

/// By configuration, ALPN or the first bytes; `None` = the client left or was too slow.
async fn version(stream: Stream, service: &Service) -> Option<(HttpProtocol, Stream)> {
    let configured = service.settings().protocol;
    if configured != HttpProtocol::Auto {
        return Some((configured, stream));
    }
    match stream.io.alpn() {
        Some(b"h2") => return Some((HttpProtocol::Http2, stream)),
        Some(_) => return Some((HttpProtocol::Http1, stream)),
        None => {}
    }
    let deadline = Instant::now() + service.settings().idle_timeout;
    Box::pin(tokio::time::timeout_at(deadline, preface(stream)))
        .await
        .ok()?
}

/// Reads until the HTTP/2 preface is there or cannot be.
async fn preface(mut stream: Stream) -> Option<(HttpProtocol, Stream)> {
    let mut seen = BytesMut::from(stream.prefix);
    loop {
        let version = match detect::http2_preface(&seen) {
            Detected::Yes => HttpProtocol::Http2,
            Detected::No => HttpProtocol::Http1,
            Detected::More => {
                if !stream.io.is_tls() {
                    // No buffer for a client that says nothing.
                    stream.io.tcp().readable().await.ok()?;
                }
                seen.reserve(FIRST_READ);
                if stream.io.read_buf(&mut seen).await.ok()? == 0 {
                    return None;
                }
                continue;
            }
        };
        stream.prefix = seen.freeze();
        return Some((version, stream));
    }
}
