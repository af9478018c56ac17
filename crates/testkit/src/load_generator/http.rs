//! Clients of HTTP/1.1, HTTP/2 and unary gRPC, in plain text or over TLS, with a connection each.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::load_generator::Session;
use crate::load_generator::tls::{self, Settings, SettingsError};

/// The protocol of the requests.
#[derive(Debug, Clone, Copy, Eq, PartialEq)]
pub enum Protocol {
    /// A message to a method, by HTTP/2: the response must have status 0.
    Grpc,
    /// HTTP/1.1 with kept connections.
    Http1,
    /// HTTP/2, by prior knowledge without TLS.
    Http2,
}

impl Protocol {
    /// The name in a TLS handshake (ALPN).
    fn alpn(self) -> &'static [u8] {
        match self {
            Self::Grpc | Self::Http2 => b"h2",
            Self::Http1 => b"http/1.1",
        }
    }
}

/// A URL that cannot be called.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// It has no host.
    #[error("the URL has no host; write http://HOST:PORT/PATH")]
    Host,
    /// It has another scheme than `http` and `https`.
    #[error("the scheme must be http or https")]
    Scheme,
    /// The host cannot be verified by a certificate.
    #[error("no certificate can have the name {0:?}")]
    ServerName(String),
    /// It is one of TLS, whose settings cannot be used.
    #[error(transparent)]
    Tls(#[from] SettingsError),
}

/// What the clients of one request need for a handshake.
struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.name).finish()
    }
}

/// The request that clients repeat.
#[derive(Debug)]
pub struct Call {
    protocol: Protocol,
    host: String,
    port: u16,
    tls: Option<Tls>,
    parts: http::request::Parts,
    body: Bytes,
    timeout: Duration,
}

impl Call {
    /// Creates a request; the host header, and those of gRPC, are added to `headers`.
    ///
    /// # Errors
    ///
    /// The URL has no host, or its scheme is neither `http` nor `https`; for `https`, `tls` cannot be used.
    pub fn new(
        protocol: Protocol,
        (method, url): (Method, Uri),
        headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
        tls: &Settings,
    ) -> Result<Self, UrlError> {
        let authority = url.authority().cloned().ok_or(UrlError::Host)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let (default_port, tls) = match url.scheme_str() {
            Some("http") => (80, None),
            Some("https") => (443, Some(Tls::new(tls, protocol, &host)?)),
            _ => return Err(UrlError::Scheme),
        };
        let port = authority.port_u16().unwrap_or(default_port);
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = method;
        parts.headers = headers;
        parts.uri = url;
        match protocol {
            // The request line has the path only.
            Protocol::Http1 => {
                if let Ok(value) = authority.as_str().parse() {
                    parts.headers.entry(header::HOST).or_insert(value);
                }
                let path = parts.uri.path_and_query().cloned();
                parts.uri = path.map_or_else(|| Uri::from_static("/"), Uri::from);
            }
            Protocol::Http2 => parts.version = http::Version::HTTP_2,
            Protocol::Grpc => {
                parts.version = http::Version::HTTP_2;
                parts.method = Method::POST;
                let own = [("content-type", "application/grpc"), ("te", "trailers")];
                for (name, value) in own {
                    let value = header::HeaderValue::from_static(value);
                    parts.headers.entry(name).or_insert(value);
                }
            }
        }
        let body = match protocol {
            Protocol::Grpc => message(&body),
            Protocol::Http1 | Protocol::Http2 => body,
        };
        Ok(Self {
            protocol,
            host,
            port,
            tls,
            parts,
            body,
            timeout,
        })
    }

    fn request(&self) -> Request<Full<Bytes>> {
        Request::from_parts(self.parts.clone(), Full::new(self.body.clone()))
    }
}

impl Tls {
    fn new(settings: &Settings, protocol: Protocol, host: &str) -> Result<Self, UrlError> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| UrlError::ServerName(host.to_owned()))?;
        let config = tls::client_config(settings, protocol.alpn())?;
        let connector = TlsConnector::from(config);
        Ok(Self { connector, name })
    }
}

/// An uncompressed message with gRPC's prefix.
fn message(body: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + body.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    framed.put_slice(body);
    framed.freeze()
}

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No connection.
    #[error("cannot connect: {}", .0.kind())]
    Connect(#[from] io::Error),
    /// A gRPC status other than 0.
    #[error("gRPC status {0}")]
    GrpcStatus(String),
    /// The connection or the response broke off.
    #[error("{}", kind(.0))]
    Http(#[from] hyper::Error),
    /// A status of 400 or above.
    #[error("status {0}")]
    Status(u16),
    /// No TLS handshake.
    #[error("TLS handshake: {0}")]
    Tls(io::Error),
    /// The server does not support HTTP/2 over TLS.
    #[error("TLS handshake: the server did not agree to HTTP/2")]
    TlsWithoutHttp2,
    /// No whole response in time.
    #[error("timeout")]
    Timeout,
}

/// A description without addresses, so that there are few kinds.
fn kind(error: &hyper::Error) -> &'static str {
    match error {
        error if error.is_incomplete_message() => "the connection was closed during a response",
        error if error.is_canceled() || error.is_closed() => "the connection was closed",
        error if error.is_parse() => "invalid HTTP",
        _ => "the connection failed",
    }
}

#[derive(Debug)]
enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A client that keeps its connection, and opens another one after a failure.
#[derive(Debug)]
pub struct Client {
    call: Rc<Call>,
    connection: Option<Connection>,
}

impl Client {
    /// Creates a client without a connection; the first request opens it.
    #[must_use]
    pub fn new(call: Rc<Call>) -> Self {
        Self {
            call,
            connection: None,
        }
    }

    async fn attempt(&mut self) -> Result<(), Failure> {
        let mut connection = match self.connection.take() {
            Some(connection) if connection.is_usable() => connection,
            _ => Connection::open(&self.call).await?,
        };
        let response = connection.send(self.call.request()).await?;
        let result = check(self.call.protocol, response).await;
        if !matches!(result, Err(Failure::Http(_))) {
            self.connection = Some(connection);
        }
        result
    }
}

impl Session for Client {
    type Error = Failure;

    async fn round_trip(&mut self) -> Result<(), Failure> {
        let limit = self.call.timeout;
        timeout(limit, self.attempt())
            .await
            .unwrap_or(Err(Failure::Timeout))
    }
}

impl Connection {
    async fn open(call: &Call) -> Result<Self, Failure> {
        let stream = TcpStream::connect((call.host.as_str(), call.port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &call.tls else {
            return Self::over(stream, call.protocol).await;
        };
        let stream = tls.connector.connect(tls.name.clone(), stream).await;
        let stream = stream.map_err(Failure::Tls)?;
        let agreed = stream.get_ref().1.alpn_protocol();
        if call.protocol != Protocol::Http1 && agreed != Some(call.protocol.alpn()) {
            return Err(Failure::TlsWithoutHttp2);
        }
        Self::over(stream, call.protocol).await
    }

    async fn over<S>(stream: S, protocol: Protocol) -> Result<Self, Failure>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        Ok(match protocol {
            Protocol::Http1 => {
                let (sender, driver) = http1::handshake(io).await?;
                tokio::task::spawn_local(driver);
                Self::Http1(sender)
            }
            Protocol::Http2 | Protocol::Grpc => {
                let (sender, driver) = http2::handshake(TokioExecutor::new(), io).await?;
                tokio::task::spawn_local(driver);
                Self::Http2(sender)
            }
        })
    }

    fn is_usable(&self) -> bool {
        match self {
            Self::Http1(sender) => !sender.is_closed(),
            Self::Http2(sender) => !sender.is_closed(),
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// Reads a response to its end, and checks its status.
async fn check(protocol: Protocol, response: Response<Incoming>) -> Result<(), Failure> {
    let (head, mut body) = response.into_parts();
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        if let Ok(found) = frame?.into_trailers() {
            trailers = Some(found);
        }
    }
    if head.status.as_u16() >= 400 {
        return Err(Failure::Status(head.status.as_u16()));
    }
    if protocol != Protocol::Grpc {
        return Ok(());
    }
    let of = |headers: &HeaderMap| headers.get("grpc-status").cloned();
    let status = trailers.as_ref().and_then(of).or_else(|| of(&head.headers));
    match status.as_ref().map(http::HeaderValue::as_bytes) {
        Some(b"0") => Ok(()),
        Some(other) => Err(Failure::GrpcStatus(
            String::from_utf8_lossy(other).into_owned(),
        )),
        None => Err(Failure::GrpcStatus("missing".into())),
    }
}
