//! HTTP clients of one connection, in plain text and over TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The body of every request.
pub(super) type Body = BoxBody<Bytes, io::Error>;

/// Returns an empty body.
pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    Http1,
    Http2,
}

/// The address of a server, and the protocol.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) version: Version,
}

/// The transport of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that accepts requests.
#[derive(Debug)]
pub(super) enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// The reason why a request has no response.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// It was not sent: the connection had ended before.
    NotSent,
    /// It was sent, at least in part.
    Lost(hyper::Error),
}

impl Target {
    /// Opens a connection; the server name in TLS is `localhost`.
    pub(super) async fn stream(&self) -> io::Result<Box<dyn Stream>> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let Some(config) = &self.tls else {
            return Ok(Box::new(tcp));
        };
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(config));
        Ok(Box::new(connector.connect(name, tcp).await?))
    }

    /// Opens a connection for requests.
    pub(super) async fn connect(&self) -> io::Result<Sender> {
        let io = TokioIo::new(self.stream().await?);
        match self.version {
            Version::Http1 => {
                let (sender, connection) = http1::handshake(io).await.map_err(io::Error::other)?;
                // Its errors are seen by the requests on it.
                tokio::spawn(connection);
                Ok(Sender::Http1(sender))
            }
            Version::Http2 => {
                // The windows of the proxy's own clients.
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(1 << 20)
                    .initial_connection_window_size(4 << 20)
                    .handshake(io)
                    .await
                    .map_err(io::Error::other)?;
                tokio::spawn(connection);
                Ok(Sender::Http2(sender))
            }
        }
    }
}

impl Sender {
    /// Sends a request, and waits for the head of its response.
    pub(super) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let ready = match self {
            Self::Http1(sender) => sender.ready().await,
            Self::Http2(sender) => sender.ready().await,
        };
        if ready.is_err() {
            return Err(Unanswered::NotSent);
        }
        let sent = match self {
            Self::Http1(sender) => sender.try_send_request(request).await,
            Self::Http2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut error| match error.take_message() {
            Some(_) => Unanswered::NotSent,
            None => Unanswered::Lost(error.into_error()),
        })
    }

    /// Sends a request that must not fail.
    pub(super) async fn expect(
        &mut self,
        request: Request<Body>,
    ) -> anyhow::Result<Response<Incoming>> {
        let response = self.send(request).await.map_err(|failed| match failed {
            Unanswered::NotSent => anyhow!("the connection closed before the request"),
            Unanswered::Lost(error) => anyhow::Error::from(error).context("no response"),
        })?;
        ensure!(response.status() == 200, "status {}", response.status());
        Ok(response)
    }
}

/// Builds a request in the form of the version.
pub(super) fn request(
    version: Version,
    method: http::Method,
    path: &str,
    body: Body,
) -> anyhow::Result<Request<Body>> {
    let builder = Request::builder().method(method);
    let builder = match version {
        Version::Http1 => builder.uri(path).header("host", "localhost"),
        Version::Http2 => builder.uri(format!("http://localhost{path}")),
    };
    builder.body(body).context("building a request")
}
