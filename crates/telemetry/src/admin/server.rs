//! Serves connections of an admin port over HTTP/1.1.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::access::{Page, Refusal, Via, refusal};
use super::connections::{Busy, Connections, Limits, Place};

/// The timeout for a request's head, which includes the wait for the first byte of a further request.
const HEAD: Duration = Duration::from_secs(10);
/// The time after which a connection from the network accepts no further request. After twice this time it is closed,
/// so that a peer that does not read its response cannot keep it open. A probe of the application may take 60 s.
const LONGEST: Duration = Duration::from_secs(60);
/// The buffer size in bytes for a request's head, and for a response that has not been sent yet.
const BUFFER: usize = 32 * 1024;
/// The delay after a failure to accept a connection.
const REST: Duration = Duration::from_millis(100);
/// The minimum interval between log lines about failures to accept connections.
const EVERY: Duration = Duration::from_secs(1);

/// A response of an admin port.
pub type Response<B> = http::Response<B>;

/// The server of an admin port, with its socket and its connections.
#[derive(Debug)]
pub struct Server {
    socket: TcpListener,
    connections: Arc<Connections>,
    pages: &'static [Page],
    opened: bool,
    /// When a failure was last logged; `None` if none was.
    failed: Option<Instant>,
}

/// An accepted connection that is not yet served.
#[derive(Debug)]
pub struct Accepted {
    socket: TcpStream,
    place: Place,
    via: Via,
    pages: &'static [Page],
    opened: bool,
}

impl Server {
    /// Creates the server of a socket. `opened` is whether pages for operators are available to the network, too.
    #[must_use]
    pub fn new(socket: TcpListener, pages: &'static [Page], opened: bool, limits: Limits) -> Self {
        Self {
            socket,
            connections: Arc::new(Connections::new(limits)),
            pages,
            opened,
            failed: None,
        }
    }

    /// Accepts the next connection.
    pub async fn accept(&mut self) -> Accepted {
        loop {
            match self.accepted().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    if self.failed.is_none_or(|last| last.elapsed() > EVERY) {
                        self.failed = Some(Instant::now());
                        tracing::warn!(%error, "admin server: accept failed; retrying");
                    }
                    sleep(REST).await;
                }
            }
        }
    }

    async fn accepted(&self) -> io::Result<Accepted> {
        let (socket, peer) = self.socket.accept().await?;
        let local: SocketAddr = socket.local_addr()?;
        let via = Via::of(peer, local);
        let (place, full) = self.connections.enter(via, peer.ip());
        if full {
            // The task of the closed connection releases its descriptor before the next one is
            // accepted.
            tokio::task::yield_now().await;
        }
        Ok(Accepted {
            socket,
            place,
            via,
            pages: self.pages,
            opened: self.opened,
        })
    }
}

impl Accepted {
    /// Serves requests up to the end of the connection. `answer` is called for requests that [`refusal`] allows.
    pub async fn serve<H, F, B>(self, answer: H)
    where
        H: Fn(Request<Incoming>) -> F,
        F: Future<Output = Response<B>>,
        B: Body<Data = Bytes> + Unpin + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Self {
            socket,
            place,
            via,
            pages,
            opened,
        } = self;
        let service = service_fn(|request: Request<Incoming>| {
            let busy = place.busy();
            let (head, body) = request.into_parts();
            let refused = refusal(pages, via, opened, &head);
            let answered = refused
                .is_none()
                .then(|| answer(Request::from_parts(head, body)));
            async move {
                let response = match (answered, refused) {
                    (Some(answered), _) => answered.await.map(Either::Left),
                    (None, refused) => refused
                        .map_or_else(Response::default, refuse)
                        .map(Either::Right),
                };
                Ok::<_, Infallible>(safe(response, busy))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(BUFFER)
            .serve_connection(TokioIo::new(socket), service);
        let mut connection = pin!(connection);
        let served = async {
            if via == Via::Network {
                if let Ok(ended) = timeout(LONGEST, connection.as_mut()).await {
                    return ended;
                }
                connection.as_mut().graceful_shutdown();
                return timeout(LONGEST, connection).await.unwrap_or(Ok(()));
            }
            connection.await
        };
        let ended = tokio::select! {
            ended = served => ended,
            () = place.closed() => Ok(()),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "admin server: connection failed");
        }
    }
}

fn refuse(refusal: Refusal) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{}\n", refusal.why)));
    *response.status_mut() = refusal.status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    if let Some(allow) = refusal.allow {
        let allow = HeaderValue::from_static(allow);
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

/// Adds headers that prevent websites from using the response.
fn safe<B>(response: Response<B>, busy: Busy) -> Response<Answering<B>> {
    let mut response = response.map(|body| Answering { body, _busy: busy });
    let fields = response.headers_mut();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// A response body that is being sent. Its request counts as in progress until it has been sent.
struct Answering<B> {
    body: B,
    _busy: Busy,
}

impl<B: Body + Unpin> Body for Answering<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
