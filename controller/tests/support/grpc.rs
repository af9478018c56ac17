//! A client of the controller's port: calls, and a delta stream.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use maglor_xds::client::{Client, Update};
use maglor_xds::frame::{Deframer, frame};
use maglor_xds::grpc_server::{CertifyRequest, CertifyResponse, Node};
use maglor_xds::proto::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use maglor_xds::{Kind, Message as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

const LIMIT: Duration = Duration::from_secs(20);
const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const CERTIFY: &str = "/maglor.identity.v1.Identity/Certify";

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// How a call has ended that has failed.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl Status {
    fn of(fields: &HeaderMap) -> Option<Self> {
        let text = |name: &str| fields.get(name).map(|value| value.to_str().unwrap());
        let code = text("grpc-status")?.parse().unwrap();
        let message = text("grpc-message").unwrap_or_default().to_owned();
        (code != 0).then_some(Self { code, message })
    }
}

/// A connection to the port.
pub(crate) struct Connection {
    sender: SendRequest<Body>,
}

impl Connection {
    pub(crate) async fn open(address: &str, tls: Option<Arc<ClientConfig>>) -> io::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        let Some(tls) = tls else {
            return Ok(Self::over(socket).await);
        };
        let name = ServerName::try_from("maglor-controller").unwrap();
        Ok(Self::over(TlsConnector::from(tls).connect(name, socket).await?).await)
    }

    /// The same from another address of this host.
    pub(crate) async fn open_from(
        from: std::net::IpAddr,
        address: &str,
        tls: Arc<ClientConfig>,
    ) -> io::Result<Self> {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let socket = socket.connect(address.parse().unwrap()).await?;
        let name = ServerName::try_from("maglor-controller").unwrap();
        Ok(Self::over(TlsConnector::from(tls).connect(name, socket).await?).await)
    }

    /// Begins a certificate request without completing it: the call continues until the result is dropped.
    pub(crate) fn certify_without_end(&mut self, part: Bytes) -> impl Sized + use<> {
        let (sender, mut receiver) = mpsc::unbounded_channel::<Bytes>();
        let parts = futures_util::stream::poll_fn(move |context| {
            let part = receiver.poll_recv(context);
            part.map(|part| part.map(|data| Ok::<_, Infallible>(Frame::data(data))))
        });
        let _ = sender.send(part);
        let request = Request::post(format!("http://controller{CERTIFY}"))
            .header("content-type", "application/grpc")
            .body(StreamBody::new(parts).boxed_unsync())
            .unwrap();
        (sender, tokio::spawn(self.sender.send_request(request)))
    }

    async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io));
        let (sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        Self { sender }
    }

    async fn call(&mut self, path: &str, body: Body) -> Result<Incoming, Status> {
        let request = Request::post(format!("http://controller{path}"))
            .header("content-type", "application/grpc")
            .body(body)
            .unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        match Status::of(response.headers()) {
            Some(status) => Err(status),
            None => Ok(response.into_body()),
        }
    }

    pub(crate) async fn certify(
        mut self,
        request: &CertifyRequest,
    ) -> Result<CertifyResponse, Status> {
        let body = Full::new(frame(request)).boxed_unsync();
        let mut body = self.call(CERTIFY, body).await?;
        let mut deframer = Deframer::new(1 << 20);
        let mut answer = None;
        while let Some(part) = body.frame().await {
            match part.unwrap().into_data() {
                Ok(data) => deframer.put(&data),
                Err(part) => match Status::of(&part.into_trailers().unwrap()) {
                    Some(status) => return Err(status),
                    None => break,
                },
            }
            if let Some(message) = deframer.message().unwrap() {
                answer = Some(CertifyResponse::decode(message).unwrap());
            }
        }
        Ok(answer.unwrap())
    }

    /// The status of a rejected stream.
    pub(crate) async fn refused(self, node: &str) -> Status {
        let mut stream = Stream::open(self, node).await;
        stream.want(Kind::Listener, &["a"]);
        loop {
            let part = timeout(LIMIT, stream.response.frame()).await.unwrap();
            if let Err(part) = part.unwrap().unwrap().into_data() {
                return Status::of(&part.into_trailers().unwrap()).unwrap();
            }
        }
    }
}

/// A delta stream, and the last received state of each resource; `None`: it does not exist.
pub(crate) struct Stream {
    client: Client,
    requests: mpsc::UnboundedSender<Bytes>,
    response: Incoming,
    deframer: Deframer,
    pub(crate) seen: BTreeMap<(Kind, String), Option<Bytes>>,
    /// Responses that are not answered, while answers are held back.
    held: Option<VecDeque<Update>>,
    _connection: Connection,
}

impl Stream {
    pub(crate) async fn open(mut connection: Connection, node: &str) -> Self {
        let (requests, mut receiver) = mpsc::unbounded_channel();
        let parts = futures_util::stream::poll_fn(move |context| {
            let part = receiver.poll_recv(context);
            part.map(|part: Option<Bytes>| part.map(|data| Ok::<_, Infallible>(Frame::data(data))))
        });
        let mut client = Client::new(Node {
            id: node.to_owned(),
            ..Node::default()
        });
        client.connected();
        let body = StreamBody::new(parts).boxed_unsync();
        let response = connection.call(DELTA, body).await.unwrap();
        Self {
            client,
            requests,
            response,
            deframer: Deframer::new(1 << 20),
            seen: BTreeMap::new(),
            held: None,
            _connection: connection,
        }
    }

    pub(crate) fn want(&mut self, kind: Kind, names: &[&str]) {
        names
            .iter()
            .for_each(|name| self.client.subscribe(kind, name));
        self.say();
    }

    /// Sends arbitrary bytes on the stream.
    pub(crate) fn send(&mut self, bytes: Bytes) {
        let _ = self.requests.send(bytes);
    }

    /// Receives until a resource arrives, or the stream ends: then returns its status.
    pub(crate) async fn heard(&mut self, kind: Kind, name: &str) -> Result<(), i32> {
        let key = (kind, name.to_owned());
        while !self.seen.contains_key(&key) {
            let part = timeout(LIMIT, self.response.frame()).await;
            let part = part.unwrap_or_else(|_| panic!("{name}: not within {LIMIT:?}"));
            // Else the connection has ended, or the stream without a status.
            let Some(Ok(part)) = part else {
                return Err(-1);
            };
            match part.into_data() {
                Ok(data) => self.take(&data),
                Err(part) => {
                    let status = Status::of(&part.into_trailers().unwrap());
                    return Err(status.map_or(0, |status| status.code));
                }
            }
        }
        Ok(())
    }

    /// Answers nothing from now on.
    pub(crate) fn hold(&mut self) {
        self.held = Some(VecDeque::new());
    }

    /// Takes everything that was not answered.
    pub(crate) fn answer(&mut self) {
        for update in self.held.take().into_iter().flatten() {
            self.client.accept(&update);
        }
        self.say();
    }

    pub(crate) fn body(&self, kind: Kind, name: &str) -> Option<&Bytes> {
        self.seen.get(&(kind, name.to_owned()))?.as_ref()
    }

    fn say(&mut self) {
        while let Some(request) = self.client.request() {
            let _ = self.requests.send(frame(&request));
        }
    }

    /// Listens until a condition holds.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        holds: impl Fn(&BTreeMap<(Kind, String), Option<Bytes>>) -> bool,
    ) {
        while !holds(&self.seen) {
            let part = timeout(LIMIT, self.response.frame()).await;
            let part = part.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"));
            self.take(&part.unwrap().unwrap().into_data().unwrap());
        }
    }

    /// The same for as long as it takes; `false` where the stream ends before.
    pub(crate) async fn waits_until(
        &mut self,
        holds: impl Fn(&BTreeMap<(Kind, String), Option<Bytes>>) -> bool,
    ) -> bool {
        while !holds(&self.seen) {
            let part = self.response.frame().await.and_then(Result::ok);
            let Some(data) = part.and_then(|part| part.into_data().ok()) else {
                return false;
            };
            self.take(&data);
        }
        true
    }

    /// Reads a part of the response, and acknowledges complete messages.
    fn take(&mut self, data: &[u8]) {
        self.deframer.put(data);
        while let Some(message) = self.deframer.message().unwrap() {
            let response = DeltaDiscoveryResponse::decode(message).unwrap();
            let Some(update) = self.client.receive(response) else {
                continue;
            };
            for received in &update.resources {
                let key = (update.kind, received.name.to_string());
                self.seen.insert(key, Some(received.body.clone()));
            }
            for name in &update.removed {
                self.seen.insert((update.kind, name.to_string()), None);
            }
            match &mut self.held {
                Some(held) => held.push_back(update),
                None => self.client.accept(&update),
            }
            self.say();
        }
    }
}
