//! An HTTP/2 client: one connection, driven by a separate thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use maglor_testkit::TIMEOUT;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

/// Body of a request.
pub(crate) type Sent = UnsyncBoxBody<Bytes, io::Error>;

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    sender: SendRequest<Sent>,
    runtime: tokio::runtime::Runtime,
}

/// A response that was read completely.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: HeaderMap,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Returns an empty body.
pub(crate) fn empty() -> Sent {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body with a known length.
pub(crate) fn full(data: impl Into<Bytes>) -> Sent {
    Full::new(data.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Boxes any body.
pub(crate) fn body(body: impl Body<Data = Bytes, Error = io::Error> + Send + 'static) -> Sent {
    body.boxed_unsync()
}

/// Returns a body whose frames come through a channel; an error resets the stream.
pub(crate) fn channel() -> (mpsc::UnboundedSender<io::Result<Frame<Bytes>>>, Sent) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    });
    (sender, StreamBody::new(frames).boxed_unsync())
}

/// Returns a GET request without body.
pub(crate) fn get(path: &str) -> Request<Sent> {
    request("GET", path, empty())
}

/// Returns a request.
pub(crate) fn request(method: &str, path: &str, body: Sent) -> Request<Sent> {
    let builder = Request::builder()
        .method(method)
        .uri(format!("http://test{path}"));
    builder.body(body).unwrap()
}

impl Client {
    /// Connects with prior knowledge.
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::start(async move {
            let tcp = TcpStream::connect(address).await?;
            tcp.set_nodelay(true)?;
            Ok(tcp)
        })
    }

    /// Connects with TLS; the configuration must offer `h2`.
    #[track_caller]
    pub(crate) fn connect_tls(address: SocketAddr, name: &str, config: Arc<ClientConfig>) -> Self {
        let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
        Self::start(async move {
            let tcp = TcpStream::connect(address).await?;
            let tls = tokio_rustls::TlsConnector::from(config)
                .connect(name, tcp)
                .await?;
            assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            Ok(tls)
        })
    }

    #[track_caller]
    fn start<S>(connect: impl Future<Output = io::Result<S>> + Send + 'static) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (reported, sender) = oneshot::channel();
        std::thread::spawn(move || {
            runtime().block_on(async move {
                let io = TokioIo::new(connect.await.expect("a connection"));
                let mut builder = Builder::new(TokioExecutor::new());
                // Small windows, so that flow control takes effect.
                builder
                    .initial_stream_window_size(65_535)
                    .initial_connection_window_size(1 << 20);
                let (sender, connection) = builder.handshake(io).await.expect("a handshake");
                let _ = reported.send(sender);
                // Requests report how it ends.
                let _ = connection.await;
            });
        });
        let runtime = runtime();
        let sender = runtime.block_on(sender).expect("a connection");
        Self { sender, runtime }
    }

    /// Returns whether no new request can be sent: the connection is closed, or has received GOAWAY.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Runs a future, at most for the time limit of tests.
    #[track_caller]
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let limited = async { tokio::time::timeout(TIMEOUT, future).await };
        self.runtime.block_on(limited).expect("in time")
    }

    /// Sends a request; the response's head is the result of the future.
    pub(crate) fn send(
        &mut self,
        request: Request<Sent>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        let mut sender = self.sender.clone();
        async move {
            sender.ready().await?;
            sender.send_request(request).await
        }
    }

    /// Sends a request and reads its response.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: Request<Sent>) -> Answer {
        self.try_ask(request).expect("a response")
    }

    /// Sends a request and reads its response.
    pub(crate) fn try_ask(&mut self, request: Request<Sent>) -> hyper::Result<Answer> {
        let sent = self.send(request);
        self.run(async move { read(sent.await?).await })
    }
}

/// Reads a response.
pub(crate) async fn read(response: Response<Incoming>) -> hyper::Result<Answer> {
    let (head, body) = response.into_parts();
    let collected = body.collect().await?;
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        trailers: collected.trailers().cloned().unwrap_or_default(),
        body: collected.to_bytes().into(),
    })
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}
