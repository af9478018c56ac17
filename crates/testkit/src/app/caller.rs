//! A single-threaded client: `GET` over HTTP/1.1 with kept-alive connections.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderMap, HeaderValue};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, TcpStream};

/// The idle connections of one thread, by address. The one used last is reused first.
#[derive(Debug, Default)]
pub struct Caller {
    own: Option<IpAddr>,
    /// The node of the caller, if it is to be sent.
    node: Option<HeaderValue>,
    idle: RefCell<HashMap<SocketAddr, Vec<SendRequest<Empty<Bytes>>>>>,
}

/// A header of responses: the time in µs that the request would have taken if only the queues of
/// instances took time. The rest of the measured time is overhead: proxies, sockets, timers.
pub(super) const EXACT: &str = "x-exact-us";

/// A header of requests that is forwarded to called services.
pub(super) const REQUEST_ID: &str = "x-request-id";

/// A header of requests: the node of the caller.
pub(super) const CALLER_NODE: &str = "x-caller-node";

/// A complete response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Answered {
    /// Its status.
    pub status: u16,
    /// The time that the request would have taken if only the queues of instances took time; zero
    /// if the response does not contain it.
    pub exact: Duration,
}

/// The reason why a call has no response.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection.
    #[error("connect to {target}: {source}")]
    Connect {
        /// The address.
        target: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The connection broke, or the response is no HTTP.
    #[error("call of {target}: {source}")]
    RoundTrip {
        /// The address.
        target: SocketAddr,
        /// hyper's error.
        source: hyper::Error,
    },
    /// A request cannot have this host or path.
    #[error("invalid request: {0}")]
    Request(#[from] http::Error),
}

impl Caller {
    /// Creates a caller whose connections come from this address, if it and the called one are
    /// loopback addresses: so callers on one machine can be distinguished, like pods.
    #[must_use]
    pub fn at(own: IpAddr) -> Self {
        Self {
            own: Some(own),
            ..Self::default()
        }
    }

    /// Creates the same caller, which sends its node.
    #[must_use]
    pub(super) fn on_node(self, node: Option<HeaderValue>) -> Self {
        Self { node, ..self }
    }

    /// Returns whether a request came from another node; one without a node did not.
    pub(super) fn is_elsewhere(&self, caller: Option<&HeaderValue>) -> bool {
        caller.is_some() && caller != self.node.as_ref()
    }

    /// Requests `path` of `host` from `target`, and reads the response to its end. Waits as long as
    /// it takes. A call on behalf of a request carries its `x-request-id`, by which proxies
    /// correlate them.
    ///
    /// # Errors
    ///
    /// There is no complete response.
    pub async fn get(
        &self,
        target: SocketAddr,
        host: &str,
        path: &str,
        request_id: Option<&HeaderValue>,
    ) -> Result<Answered, CallError> {
        let failed = |source| CallError::RoundTrip { target, source };
        loop {
            let (mut sender, kept) = match self.take(target) {
                Some(sender) => (sender, true),
                None => (connect(self.own, target).await?, false),
            };
            let mut request = Request::get(path).header("host", host);
            if let Some(id) = request_id {
                request = request.header(REQUEST_ID, id);
            }
            if let Some(node) = &self.node {
                request = request.header(CALLER_NODE, node);
            }
            let request = request.body(Empty::new())?;
            let answer = match sender.send_request(request).await {
                // The other side closed it while it was idle; nothing was sent.
                Err(error) if kept && error.is_canceled() => continue,
                answer => answer.map_err(failed)?,
            };
            let answered = Answered {
                status: answer.status().as_u16(),
                exact: exact(answer.headers()),
            };
            let mut body = answer.into_body();
            while let Some(frame) = body.frame().await {
                frame.map_err(failed)?;
            }
            if sender.ready().await.is_ok() {
                self.idle
                    .borrow_mut()
                    .entry(target)
                    .or_default()
                    .push(sender);
            }
            return Ok(answered);
        }
    }

    /// Closes idle connections.
    pub fn close(&self) {
        self.idle.borrow_mut().clear();
    }

    fn take(&self, target: SocketAddr) -> Option<SendRequest<Empty<Bytes>>> {
        let mut idle = self.idle.borrow_mut();
        let idle = idle.get_mut(&target)?;
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }
}

fn exact(headers: &HeaderMap) -> Duration {
    let value = headers.get(EXACT).and_then(|value| value.to_str().ok());
    let micros = value.and_then(|value| value.parse().ok());
    Duration::from_micros(micros.unwrap_or_default())
}

async fn connect(
    own: Option<IpAddr>,
    target: SocketAddr,
) -> Result<SendRequest<Empty<Bytes>>, CallError> {
    let failed = |source| CallError::Connect { target, source };
    let stream = stream(own, target).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) =
        handshake.map_err(|source| CallError::RoundTrip { target, source })?;
    // The task ends with its sender.
    tokio::task::spawn_local(connection);
    Ok(sender)
}

async fn stream(own: Option<IpAddr>, target: SocketAddr) -> io::Result<TcpStream> {
    let near = |own: &IpAddr| own.is_loopback() && target.ip().is_loopback();
    let Some(own) = own.filter(near) else {
        return TcpStream::connect(target).await;
    };
    let socket = match own {
        IpAddr::V4(_) => TcpSocket::new_v4(),
        IpAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.bind(SocketAddr::new(own, 0))?;
    socket.connect(target).await
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_caller_has_the_address_that_it_was_given() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let target = listener.local_addr().unwrap();
        let own = IpAddr::from([127, 9, 8, 7]);
        for (input, seen) in [(Some(own), own), (None, Ipv4Addr::LOCALHOST.into())] {
            let _stream = stream(input, target).await.unwrap();
            let (_, from) = listener.accept().await.unwrap();
            assert_eq!(from.ip(), seen);
        }
    }
}
