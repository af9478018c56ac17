//! Serves connections: checks where a request comes from and who sends it, and selects the page.

use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use maglor_telemetry::admin::{Connections, Limits, Place, Via, foreign_site};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::dashboard::page::admin_port::{Proxies, Taps};
use crate::dashboard::page::answer::{self, Answer};
use crate::dashboard::page::history::{COARSE, FINE, LIMIT, Of};
use crate::dashboard::page::hub::{Document, Hub, MOST_STREAMS, Topic, seconds};
use crate::dashboard::page::model::{Source, View};
use crate::dashboard::page::query::{Query, QueryError};
use crate::dashboard::page::stream::Content;
use crate::dashboard::page::tap::{self, Tap};
use crate::dashboard::page::tokens::{Reviewer, Tokens, bearer};
use crate::dashboard::page::why::{self, Why};
use crate::dashboard::page::{assets, documents, stream};

/// Timeout for a request's head, which includes the wait for a further request.
const HEAD: Duration = Duration::from_secs(10);
/// Buffer size in bytes for a request's head, and for a part of a response that has not been sent yet.
const BUFFER: usize = 16 * 1024;
/// Delay after a failure to accept a connection.
const REST: Duration = Duration::from_millis(100);
/// Capacity of a tap's queue; requests beyond it are counted, so that nothing accumulates for a slow viewer on the way.
const TAPPED: usize = 256;
/// Maximum number of requests for explanations that are answered at a time, because each may take megabytes.
const EXPLANATIONS: usize = 2;
/// Response to a request for an explanation of which there is nothing.
const NOTHING_KEPT: &str = "Nothing is kept of this request. Proxies keep failed requests and the slowest 1 % for ten minutes, unless `stories` is \
                            false in their configuration or the MeshConfig.";
/// Response to a user without access to the dashboard.
const MAY_NOT_READ: &str =
    "the user may not read the dashboard: `get` on the URL `/maglor/dashboard` is required";
/// Response to a user without access to admin ports.
const MAY_NOT_TAP: &str = "the user may not connect to any proxy: `get` and `create` on `pods/portforward` are required \
                           in the namespace of a proxy";
/// Maximum and default number of points of a series.
const POINTS: (usize, usize) = (2000, 300);
/// Limits of the port. A page has up to three streams and a few connections for files.
const LIMITS: Limits = Limits {
    network: 192,
    source: 48,
    loopback: 192,
    bytes: 0,
};

/// Who may read the dashboard.
#[derive(Clone, Default)]
pub struct Access {
    /// Host names by which browsers reach this port, in addition to `localhost`, without a port.
    pub host_names: Vec<String>,
    /// Reviews the tokens of users who connect over the network; `None` if only connections over loopback are
    /// served. Connections over loopback need no token.
    pub reviewer: Option<Arc<dyn Reviewer>>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("host_names", &self.host_names)
            .field("reviewer", &self.reviewer.is_some())
            .finish()
    }
}

/// The dashboard of a mesh. Clones share the same state.
#[derive(Clone)]
pub struct Dashboard {
    hub: Arc<Hub>,
    host_names: Arc<[String]>,
    tokens: Option<Arc<Tokens>>,
    connections: Arc<Connections>,
    explanations: Arc<Semaphore>,
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").finish_non_exhaustive()
    }
}

/// The peer of a connection.
#[derive(Clone, Copy)]
struct Peer {
    via: Via,
    address: IpAddr,
}

impl Dashboard {
    /// Creates a dashboard without history.
    #[must_use]
    pub fn new(source: Arc<dyn Source>, access: Access) -> Self {
        Self {
            hub: Arc::new(Hub::new(source)),
            host_names: access.host_names.into(),
            tokens: access
                .reviewer
                .map(|reviewer| Arc::new(Tokens::new(reviewer))),
            connections: Arc::new(Connections::new(LIMITS)),
            explanations: Arc::new(Semaphore::new(EXPLANATIONS)),
        }
    }

    /// Records the history and updates the viewers; never returns.
    pub async fn run(&self) {
        self.hub.run().await;
    }

    /// Accepts and serves connections without TLS; never returns. Connections from the network are only served if
    /// there is a reviewer of tokens.
    pub async fn serve_socket(self, socket: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            let accepted = accepted.and_then(|(tcp, peer)| Ok((tcp.local_addr()?, peer, tcp)));
            match accepted {
                Ok((local, peer, tcp)) => {
                    let _ = tcp.set_nodelay(true);
                    let served = self.clone().serve(tcp, peer, local);
                    connections.spawn(served);
                }
                Err(error) => {
                    tracing::warn!(%error, "dashboard: accept failed; retrying");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    /// Serves a connection until it ends.
    pub async fn serve<Io>(self, io: Io, peer: SocketAddr, local: SocketAddr)
    where
        Io: AsyncRead + AsyncWrite + Unpin,
    {
        let peer = Peer {
            via: Via::of(peer, local),
            address: peer.ip(),
        };
        let (place, _) = self.connections.enter(peer.via, peer.address);
        let place: &Place = &place;
        let service = service_fn(|request: Request<Incoming>| {
            let busy = place.busy();
            let this = &self;
            async move {
                let (mut head, body) = request.into_parts();
                head.extensions.insert(peer);
                let head_only = head.method == Method::HEAD;
                let answer = match body.is_end_stream() {
                    true => this.answer(&head, peer).await,
                    false => answer::error(StatusCode::PAYLOAD_TOO_LARGE, "a request has no body"),
                };
                let mut answer = answer::finished(answer, head_only);
                if let Content::Events(_, held) = answer.body_mut() {
                    *held = Some(busy);
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(BUFFER)
            .serve_connection(TokioIo::new(io), service);
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => if let Err(error) = ended {
                tracing::debug!(%error, "dashboard: connection failed");
            },
            () = place.closed() => {}
        }
    }

    async fn answer(&self, head: &Parts, peer: Peer) -> Answer {
        if let Some(refusal) = foreign_site(head, peer.via, &self.host_names) {
            return answer::error(refusal.status, refusal.why);
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let mut answer = answer::error(
                StatusCode::METHOD_NOT_ALLOWED,
                "the dashboard is read-only: use GET",
            );
            let allow = HeaderValue::from_static("GET, HEAD");
            answer.headers_mut().insert(header::ALLOW, allow);
            return answer;
        }
        let path = head.uri.path();
        let Some(page) = path.strip_prefix("/api/") else {
            return match assets::find(path) {
                Some(asset) => answer::asset(head, asset),
                None => answer::error(StatusCode::NOT_FOUND, "no such page"),
            };
        };
        if let Err(answer) = self.authenticate(head, peer).await {
            return answer;
        }
        let result = match page {
            "v1/about" => self.about(head),
            "v1/decisions" => self.list(head, Topic::Decisions),
            "v1/mesh" => self.mesh(head),
            "v1/receipts" => self.list(head, Topic::Receipts),
            "v1/series" => self.series(head),
            "v1/service" => self.service(head),
            "v1/tap" => self.tap(head).await,
            "v1/why" => self.why(head).await,
            _ => Ok(answer::error(StatusCode::NOT_FOUND, "no such page")),
        };
        result.unwrap_or_else(|error| answer::error(StatusCode::BAD_REQUEST, &error.to_string()))
    }

    async fn authenticate(&self, head: &Parts, peer: Peer) -> Result<(), Answer> {
        if peer.via == Via::Loopback {
            return Ok(());
        }
        let Some(tokens) = &self.tokens else {
            let why = "the dashboard is available only over loopback: use `maglor dashboard` or `kubectl port-forward`";
            return Err(answer::error(StatusCode::FORBIDDEN, why));
        };
        let token = bearer(head).ok_or_else(answer::without_token)?;
        let checked = tokens.check(token, peer.address).await;
        checked.map_err(|denied| answer::denied(denied, MAY_NOT_READ))
    }

    /// Runs a stream until it ends, or until its viewer may no longer read the dashboard.
    fn stream(&self, head: &Parts, stream: impl Future<Output = ()> + Send + 'static) {
        let peer = head.extensions.get::<Peer>();
        let peer = peer.filter(|peer| peer.via == Via::Network);
        match (&self.tokens, bearer(head), peer) {
            (Some(tokens), Some(token), Some(peer)) => {
                let revoked = Arc::clone(tokens).revoked(token.to_owned(), peer.address);
                tokio::spawn(async move {
                    tokio::select! {
                        () = stream => {}
                        () = revoked => {}
                    }
                });
            }
            // Users over loopback need no token.
            _ => drop(tokio::spawn(stream)),
        }
    }

    /// Returns the proxies whose admin ports this viewer may use, or the response if there are none.
    async fn proxies(&self, head: &Parts) -> Result<Proxies, Answer> {
        match self.hub.source.taps() {
            Ok(Taps::Open(proxies)) => Ok(proxies),
            Ok(Taps::Personal(permissions)) => {
                let token = bearer(head).ok_or_else(answer::without_token)?;
                let permitted = permissions.proxies(token).await;
                permitted.map_err(|denied| answer::denied(denied, MAY_NOT_TAP))
            }
            Err(reason) => Err(answer::error(StatusCode::SERVICE_UNAVAILABLE, reason)),
        }
    }

    fn about(&self, head: &Parts) -> Result<Answer, QueryError> {
        Query::parse(head.uri.query(), &[])?;
        let source = &self.hub.source;
        let about = source.about();
        let history = self.hub.history();
        let range = history.range();
        let mut value = json!({
            "version": about.version,
            "source": about.source,
            "authentication": if self.tokens.is_some() { "token" } else { "none" },
            "history": {
                "fine_step": FINE.0,
                "fine_seconds": FINE.0 * FINE.1 as u64,
                "step": COARSE.0,
                "seconds": COARSE.0 * COARSE.1 as u64,
                "bytes": history.size(),
                "limit_bytes": LIMIT,
            },
            "tap": match source.taps() {
                Ok(Taps::Open(_)) => json!({"available": true}),
                // The page does not ask for a token before its user wants to see requests.
                Ok(Taps::Personal(_)) => {
                    json!({"available": true, "token_required": bearer(head).is_none()})
                }
                Err(reason) => json!({"available": false, "reason": reason}),
            },
            "viewers": self.hub.streams(),
            "most_viewers": MOST_STREAMS,
        });
        drop(history);
        if let Some((oldest, newest)) = range {
            value["history"]["oldest"] = oldest.into();
            value["history"]["newest"] = newest.into();
        }
        if let Some(replica) = about.replica {
            value["replica"] = replica.into();
        }
        if let Some(interval) = source.interval() {
            value["interval_seconds"] = json!(interval.as_secs_f64());
        }
        Ok(answer::document(head, &Document::new(value)))
    }

    fn mesh(&self, head: &Parts) -> Result<Answer, QueryError> {
        let query = Query::parse(head.uri.query(), &["at", "view"])?;
        let view = match query.value("view") {
            None => View::default(),
            Some(name) => {
                let mut views = View::ALL.into_iter();
                let view = views.find(|view| view.name() == name);
                let names = View::ALL.map(View::name).join(", ");
                view.ok_or_else(|| {
                    QueryError(format!("view: expected one of {names}, found `{name}`"))
                })?
            }
        };
        let at = query.time("at")?;
        if at.is_some() && view != View::Service {
            return Err(QueryError(
                "at: the history has the view `service` only".to_owned(),
            ));
        }
        self.topic(head, Topic::Mesh(view), at)
    }

    fn service(&self, head: &Parts) -> Result<Answer, QueryError> {
        let query = Query::parse(head.uri.query(), &["at", "name"])?;
        let name = query.value("name");
        let name = name.ok_or_else(|| QueryError("name: the service is missing".to_owned()))?;
        self.topic(head, Topic::Service(name.to_owned()), query.time("at")?)
    }

    fn list(&self, head: &Parts, topic: Topic) -> Result<Answer, QueryError> {
        Query::parse(head.uri.query(), &[])?;
        self.topic(head, topic, None)
    }

    /// Returns a document or, if events are accepted, a stream of it.
    fn topic(&self, head: &Parts, topic: Topic, at: Option<u64>) -> Result<Answer, QueryError> {
        let unknown = || {
            answer::error(
                StatusCode::NOT_FOUND,
                "no such service, or no history of that time",
            )
        };
        let follows = accepts_events(head);
        Ok(match at {
            Some(_) if follows => {
                return Err(QueryError(
                    "at: the past does not change; request it as JSON".to_owned(),
                ));
            }
            Some(time) => match self.hub.past(&topic, time) {
                Some(value) => answer::document(head, &Document::new(value)),
                None => unknown(),
            },
            None => match self.hub.document(&topic) {
                None => unknown(),
                Some(_) if follows && head.method == Method::GET => self.follow(head, topic),
                Some(document) => answer::document(head, &document),
            },
        })
    }

    fn follow(&self, head: &Parts, topic: Topic) -> Answer {
        let Some(stream) = self.hub.open_stream() else {
            return too_many();
        };
        let (sender, receiver) = mpsc::channel(1);
        // Ends when the receiver, which the connection owns, is dropped.
        self.stream(
            head,
            stream::follow(Arc::clone(&self.hub), topic, sender, stream),
        );
        answer::events(receiver)
    }

    fn series(&self, head: &Parts) -> Result<Answer, QueryError> {
        let query = Query::parse(head.uri.query(), &["edge", "from", "name", "points", "to"])?;
        let (name, edge) = (query.value("name"), query.value("edge"));
        let of = match (name, edge) {
            (_, Some(edge)) => {
                let ends = edge.split_once('>');
                let (from, to) = ends
                    .ok_or_else(|| QueryError(format!("edge: expected FROM>TO, found `{edge}`")))?;
                Of::Edge(from, to)
            }
            (Some(name), None) => Of::Vertex(name),
            (None, None) => Of::Mesh,
        };
        let to = query.time("to")?.unwrap_or(seconds() as u64);
        let from = query.time("from")?.unwrap_or(to.saturating_sub(3600));
        if from >= to {
            return Err(QueryError("from: must be before `to`".to_owned()));
        }
        let points = query.number("points", POINTS.1, POINTS.0)?;
        let series = self.hub.history().series(of, from, to, points);
        Ok(match series {
            None => answer::error(
                StatusCode::NOT_FOUND,
                "no such service or edge in the history",
            ),
            Some(series) => {
                let value: Value = documents::series(edge.or(name), to, &series);
                answer::document(head, &Document::new(value))
            }
        })
    }

    async fn why(&self, head: &Parts) -> Result<Answer, QueryError> {
        let query = Query::parse(head.uri.query(), &why::PARAMETERS)?;
        let why = Why::new(&query)?;
        let source = &self.hub.source;
        // The semaphore is never closed.
        let _permit = self.explanations.acquire().await;
        let proxies = match self.proxies(head).await {
            Ok(proxies) => proxies,
            Err(answer) => return Ok(answer),
        };
        Ok(match why.answer(&**source, proxies).await {
            Some(document) => answer::document(head, &Document::new(document)),
            None => answer::error(StatusCode::NOT_FOUND, NOTHING_KEPT),
        })
    }

    async fn tap(&self, head: &Parts) -> Result<Answer, QueryError> {
        let query = Query::parse(head.uri.query(), &tap::PARAMETERS)?;
        let proxies = match self.proxies(head).await {
            Ok(proxies) => proxies,
            Err(answer) => return Ok(answer),
        };
        let tap = Tap::new(&query, proxies)?;
        if !accepts_events(head) || head.method != Method::GET {
            return Err(QueryError(
                "live requests are a stream: accept text/event-stream".to_owned(),
            ));
        }
        let Some(stream) = self.hub.open_stream() else {
            return Ok(too_many());
        };
        let (sender, receiver) = mpsc::channel(TAPPED);
        // Ends when the receiver, which the connection owns, is dropped.
        self.stream(head, tap.run(sender, stream));
        Ok(answer::events(receiver))
    }
}

fn too_many() -> Answer {
    let why = format!("{MOST_STREAMS} streams are open; retry later");
    let mut answer = answer::error(StatusCode::TOO_MANY_REQUESTS, &why);
    let retry = HeaderValue::from_static("5");
    answer.headers_mut().insert(header::RETRY_AFTER, retry);
    answer
}

fn accepts_events(head: &Parts) -> bool {
    let fields = head.headers.get_all(header::ACCEPT).iter();
    let mut kinds = fields.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    kinds.any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/event-stream")
    })
}
