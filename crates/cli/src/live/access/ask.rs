//! Sends HTTP requests to an admin port, over TCP or through the API server.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::super::LiveError;
use super::Address;

/// Timeout of a request, far longer than any request takes.
const LIMIT: Duration = Duration::from_secs(10);

/// An admin port.
#[derive(Clone)]
pub(crate) enum Admin {
    /// A port at an address.
    Direct(Address),
    /// A port of a pod.
    Pod {
        /// API of the pods in the pod's namespace.
        pods: Box<Api<Pod>>,
        /// Name of the pod.
        name: String,
        /// Number of the port.
        port: u16,
    },
}

/// A bidirectional byte stream.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Admin {
    fn whom(&self) -> String {
        match self {
            Self::Direct(address) => address.0.clone(),
            Self::Pod { name, port, .. } => format!("{name}:{port}"),
        }
    }

    /// Opens a connection for any protocol.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Io>, LiveError> {
        match self {
            Self::Direct(address) => {
                let socket = TcpStream::connect(&address.0).await;
                let socket = socket.map_err(|source| LiveError::Connect {
                    whom: self.whom(),
                    source,
                })?;
                Ok(Box::new(socket))
            }
            Self::Pod { pods, name, port } => {
                let failed = |why: String| LiveError::PortForward {
                    whom: self.whom(),
                    why,
                };
                let forwarded = pods.portforward(name, &[*port]).await;
                let mut forwarded = forwarded.map_err(|error| failed(error.to_string()))?;
                let stream = forwarded.take_stream(*port);
                let stream = stream.ok_or_else(|| failed("port forwarding failed".to_owned()))?;
                Ok(Box::new(stream))
            }
        }
    }

    /// Sends a request and returns its response; fails if the status is not 200.
    async fn ask(&self, path: &str) -> Result<Incoming, LiveError> {
        let failed = |source| LiveError::Http {
            whom: self.whom(),
            source,
        };
        let io = TokioIo::new(self.connect().await?);
        let handshake = hyper::client::conn::http1::handshake(io).await;
        let (mut sender, connection) = handshake.map_err(failed)?;
        // The task ends with the response, which also reports errors of the connection.
        tokio::spawn(connection);
        let request = Request::get(path)
            .header(http::header::HOST, "localhost")
            .body(Empty::<Bytes>::new());
        let request = request.map_err(|_| LiveError::Value {
            what: "path",
            value: path.to_owned(),
            expected: "a path of a URL",
        })?;
        let response = sender.send_request(request).await.map_err(failed)?;
        let (head, body) = response.into_parts();
        if head.status == StatusCode::OK {
            return Ok(body);
        }
        let text = body.collect().await.map_err(failed)?.to_bytes();
        let text = String::from_utf8_lossy(&text);
        Err(LiveError::Status {
            whom: self.whom(),
            path: path.to_owned(),
            status: head.status,
            text: text.lines().next().unwrap_or_default().to_owned(),
        })
    }

    async fn in_time<T>(
        &self,
        path: &str,
        answer: impl Future<Output = Result<T, LiveError>>,
    ) -> Result<T, LiveError> {
        let late = |_| {
            Err(LiveError::Timeout {
                whom: self.whom(),
                path: path.to_owned(),
                seconds: LIMIT.as_secs(),
            })
        };
        tokio::time::timeout(LIMIT, answer)
            .await
            .unwrap_or_else(late)
    }

    /// Returns the content of a page.
    pub(crate) async fn get(&self, path: &str) -> Result<Bytes, LiveError> {
        let whole = async {
            let body = self.ask(path).await?.collect().await;
            let body = body.map_err(|source| LiveError::Http {
                whom: self.whom(),
                source,
            })?;
            Ok(body.to_bytes())
        };
        self.in_time(path, whole).await
    }

    /// Returns the content of a JSON page.
    pub(crate) async fn json<T: DeserializeOwned>(&self, path: &str) -> Result<T, LiveError> {
        let page = self.get(path).await?;
        serde_json::from_slice(&page).map_err(|source| LiveError::Answer {
            whom: self.whom(),
            path: path.to_owned(),
            source,
        })
    }

    /// Returns a page whose lines are streamed as events occur.
    pub(crate) async fn lines(&self, path: &str) -> Result<Lines, LiveError> {
        let body = self.in_time(path, self.ask(path)).await?;
        Ok(Lines {
            whom: self.whom(),
            body,
            waiting: BytesMut::new(),
        })
    }
}

/// A stream of lines.
pub(crate) struct Lines {
    whom: String,
    body: Incoming,
    waiting: BytesMut,
}

impl Lines {
    /// Returns the next line; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, LiveError> {
        loop {
            if let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.waiting.split_to(end + 1).freeze()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(part)) => {
                    let data = part.data_ref().map_or(&[][..], |data| data);
                    self.waiting.extend_from_slice(data);
                }
                Some(Err(source)) => {
                    let whom = self.whom.clone();
                    return Err(LiveError::Http { whom, source });
                }
            }
        }
    }
}
