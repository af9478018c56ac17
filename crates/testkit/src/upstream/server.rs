//! The server's thread: accepts connections, terminates TLS, and closes connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Phase;
use super::behaviour::{self, Call};
use super::io::{Interim, Preceded};
use super::record::{OpenConnection, Shared};

/// Serves until it is stopped and every connection has ended.
pub(super) fn run(
    listener: std::net::TcpListener,
    tls: Option<Arc<ServerConfig>>,
    shared: &Arc<Shared>,
    phase: watch::Receiver<Phase>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        listener.set_nonblocking(true).expect("a fresh socket");
        let listener = TcpListener::from_std(listener).expect("a runtime with I/O");
        accept(listener, tls.map(TlsAcceptor::from), shared, phase).await;
    });
    // Upgraded connections that never end are aborted with the runtime.
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: &Arc<Shared>,
    mut phase: watch::Receiver<Phase>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = phase.wait_for(|phase| *phase != Phase::Running) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                let connection = Connection {
                    peer,
                    open: Arc::new(shared.accept()),
                    shared: Arc::clone(shared),
                };
                connections.spawn(connection.run(socket, tls.clone(), phase.clone()));
            }
            // Out of file descriptors, most likely; no reason to stop the server.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

struct Connection {
    peer: SocketAddr,
    open: Arc<OpenConnection>,
    shared: Arc<Shared>,
}

impl Connection {
    /// Serves a connection to its end, or resets it when the server is killed.
    async fn run(self, socket: TcpStream, tls: Option<TlsAcceptor>, phase: watch::Receiver<Phase>) {
        // Neither fails on a fresh socket; if they did, the test would only be slower.
        let _ = socket.set_nodelay(true);
        let Ok(handle) = SockRef::from(&socket).try_clone() else {
            return;
        };
        let serving = async {
            match tls {
                None => self.serve(socket, phase.clone()).await,
                // The test of a client that fails the handshake detects that itself.
                Some(tls) => match tls.accept(socket).await {
                    Ok(stream) => self.serve(stream, phase.clone()).await,
                    Err(_) => Ok(()),
                },
            }
        };
        let mut killed = phase.clone();
        tokio::select! {
            // Errors are caused by the client, or were requested.
            _ = serving => {}
            _ = killed.wait_for(|phase| *phase == Phase::Killed) => {
                // The last handle to be dropped; the one of hyper is dropped before.
                let _ = handle.set_linger(Some(Duration::ZERO));
            }
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut phase: watch::Receiver<Phase>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let interim = Interim::default();
        let stream = TokioIo::new(Preceded::new(stream, interim.clone()));
        let service = service_fn(|request: hyper::Request<Incoming>| {
            let recorded = self.shared.record(self.open.number(), self.peer, &request);
            let call = Call {
                shared: Arc::clone(&self.shared),
                open: Arc::clone(&self.open),
                interim: interim.clone(),
                recorded,
            };
            behaviour::serve(call, request)
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).half_close(true);
        builder
            .http2()
            .timer(TokioTimer::new())
            .enable_connect_protocol();
        let serving = builder.serve_connection_with_upgrades(stream, service);
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            result = &mut serving => return result,
            _ = phase.wait_for(|phase| *phase != Phase::Running) => {}
        }
        serving.as_mut().graceful_shutdown();
        serving.await
    }
}
