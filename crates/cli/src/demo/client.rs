//! An HTTP/1.1 client of one address that keeps its connections.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The time limit, far more than any response takes.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("unexpected response")]
    Intruder,
    #[error("status {0}")]
    Status(StatusCode),
    #[error("timeout after {TIMEOUT:?}")]
    Timeout,
}

#[derive(Debug)]
pub(super) struct Client {
    address: SocketAddr,
    host: HeaderValue,
    idle: RefCell<Vec<SendRequest<Empty<Bytes>>>>,
}

impl Client {
    /// Creates a client of the server at `address`, with the host name `host`.
    pub(super) fn new(address: SocketAddr, host: &'static str) -> Self {
        Self {
            address,
            host: HeaderValue::from_static(host),
            idle: RefCell::default(),
        }
    }

    /// Returns the body of a page.
    pub(super) async fn get(&self, path: &'static str) -> Result<Bytes, Failure> {
        Ok(self.send(Self::request(path)).await?.into_body())
    }

    /// Returns a request for a page, to which headers may be added.
    pub(super) fn request(path: &'static str) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = http::Uri::from_static(path);
        request
    }

    /// Sends a request; returns its response once it is complete, if it is a success.
    pub(super) async fn send(
        &self,
        mut request: Request<Empty<Bytes>>,
    ) -> Result<Response<Bytes>, Failure> {
        let host = self.host.clone();
        request.headers_mut().insert(header::HOST, host);
        let round_trip = async {
            let mut connection = self.connection().await?;
            let response = connection.send_request(request).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            self.idle.borrow_mut().push(connection);
            match head.status {
                StatusCode::OK => Ok(Response::from_parts(head, body)),
                status => Err(Failure::Status(status)),
            }
        };
        tokio::time::timeout(TIMEOUT, round_trip)
            .await
            .unwrap_or(Err(Failure::Timeout))
    }

    async fn connection(&self) -> Result<SendRequest<Empty<Bytes>>, Failure> {
        let idle = |connection: SendRequest<_>| connection.is_ready().then_some(connection);
        let found = self.idle.borrow_mut().pop().and_then(idle);
        if let Some(connection) = found {
            return Ok(connection);
        }
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let (connection, driver) = http1::handshake(TokioIo::new(tcp)).await?;
        tokio::task::spawn_local(driver);
        Ok(connection)
    }
}
