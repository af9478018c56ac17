//! The HTTPS server for requests of the API server: limits connections, reloads certificates, and closes idle
//! connections.
//!
//! The API server presents no certificate to a webhook by default, so it cannot be distinguished from a pod before
//! its request is read. A pod still cannot lock out the API server: connections and the bytes of incomplete requests
//! are limited by source ([`crate::clients`]), and connections that have sent no request are closed first.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use maglor_telemetry::admin::{Held, Limits, Place};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::clients::Clients;

/// Timeout of a request. The API server's own timeout is ten seconds by default.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);
/// Maximum size of a body in bytes. An object that etcd accepts has up to 1.5 MB, and a request contains it twice.
const LARGEST: usize = 4 << 20;
/// Buffer size in bytes for a request head, and for the part of a body that hyper reads ahead.
const BUFFER: usize = 64 << 10;
/// Limits of the port. An API server keeps a few connections, and opens one for each concurrent request. JSON takes
/// up to 16 times its text size in memory, so all requests together take at most 200 MB.
pub(crate) const LIMITS: Limits = Limits {
    network: 256,
    source: 128,
    loopback: 128,
    bytes: 3 * LARGEST,
};

/// The TLS configuration for new connections; `None` until there is a certificate.
pub(crate) type Serving = watch::Receiver<Option<Arc<ServerConfig>>>;

/// Serves requests for as long as the future is polled, once there is a certificate. `what` is the name of the
/// service in the log.
pub(crate) async fn serve<H, F>(
    socket: TcpListener,
    mut serving: Serving,
    what: &'static str,
    clients: Clients,
    handle: H,
) where
    H: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    if serving.wait_for(Option::is_some).await.is_err() {
        return;
    }
    tracing::info!(listen = ?socket.local_addr().ok(), "{what} started");
    let clients = Arc::new(clients);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (tcp, peer) = tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "{what}: accept failed; retrying");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let Some(config) = serving.borrow().clone() else {
            continue;
        };
        let Some(place) = clients.enter(peer) else {
            continue;
        };
        let (handle, clients) = (handle.clone(), Arc::clone(&clients));
        connections.spawn(async move {
            let silent = async {
                sleep(LONGEST).await;
                if !place.is_silent() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = connection(tcp, config, what, &place, handle) => {}
                () = place.closed() => {}
                () = silent => clients.metrics.silent(),
            }
        });
    }
}

async fn connection<H, F>(
    tcp: TcpStream,
    config: Arc<ServerConfig>,
    what: &'static str,
    place: &Place,
    handle: H,
) where
    H: Fn(Request<Bytes>) -> F,
    F: Future<Output = Response<Full<Bytes>>>,
{
    let tls = match TlsAcceptor::from(config).accept(tcp).await {
        Ok(tls) => tls,
        Err(error) => return tracing::debug!(%error, "{what}: TLS handshake failed"),
    };
    let handle = &handle;
    let service = service_fn(|request: Request<Incoming>| async move {
        let (head, body) = request.into_parts();
        let mut held = place.request();
        let whole = match timeout(LONGEST, whole(body, place, &mut held)).await {
            Ok(whole) => whole,
            Err(_) => Err(refuse(
                StatusCode::REQUEST_TIMEOUT,
                "timeout while reading the body",
            )),
        };
        let answer = match whole {
            Ok(body) => {
                let _busy = place.busy();
                handle(Request::from_parts(head, body)).await
            }
            Err(refusal) => refusal,
        };
        Ok::<_, Infallible>(answer)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        // This is also the maximum idle time between two requests.
        .header_read_timeout(9 * LONGEST)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(tls), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "{what}: connection failed");
    }
}

/// Reads the whole body. Its bytes are counted in `held`.
async fn whole(
    mut body: Incoming,
    place: &Place,
    held: &mut Held,
) -> Result<Bytes, Response<Full<Bytes>>> {
    let too_long = || {
        refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than 4 MiB",
        )
    };
    // A body whose announced length is too large is not read.
    if body.size_hint().lower() > LARGEST as u64 {
        return Err(too_long());
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| refuse(StatusCode::BAD_REQUEST, &error.to_string()))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if whole.len() + data.len() > LARGEST {
            return Err(too_long());
        }
        place.hold(held, data.len());
        whole.extend_from_slice(data);
    }
    Ok(whole.freeze())
}

/// Returns an error response that contains the reason.
pub(crate) fn refuse(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{why}\n")));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
