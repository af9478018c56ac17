//! HTTPS for the API server's questions: connections, certificates that change, and an end to those who say nothing.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// The API server waits for ten seconds by default.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);
/// Connections at a time; an API server keeps a few.
const CONNECTIONS: usize = 256;

/// What connections are taken with; `None` until there is a certificate.
pub(crate) type Serving = watch::Receiver<Option<Arc<ServerConfig>>>;

/// Answers as long as it is polled; waits for a certificate first. `what` is what is served, for the log.
pub(crate) async fn serve<H, F>(
    socket: TcpListener,
    mut serving: Serving,
    what: &'static str,
    handle: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    if serving.wait_for(Option::is_some).await.is_err() {
        return;
    }
    tracing::info!(listen = ?socket.local_addr().ok(), "the {what} answers");
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let tcp = tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((tcp, _)) => tcp,
                Err(error) => {
                    tracing::warn!(%error, "{what}: accept failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let Some(config) = serving.borrow().clone() else {
            continue;
        };
        let handle = handle.clone();
        connections.spawn(async move {
            connection(tcp, config, what, handle).await;
            drop(place);
        });
    }
}

async fn connection<H, F>(tcp: TcpStream, config: Arc<ServerConfig>, what: &'static str, handle: H)
where
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<Full<Bytes>>>,
{
    let tls = match timeout(LONGEST, TlsAcceptor::from(config).accept(tcp)).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => return tracing::debug!(%error, "{what}: handshake failed"),
        Err(_) => return,
    };
    let service = service_fn(|request| {
        let answer = handle(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        // Also how long a connection may say nothing between two questions.
        .header_read_timeout(9 * LONGEST)
        .serve_connection(TokioIo::new(tls), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "{what}: connection failed");
    }
}
