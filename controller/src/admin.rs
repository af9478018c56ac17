//! The admin server: `/metrics /ready /live /sessions /receipts /resources /graph /shared /trust`. No authentication: it shows
//! names of Services and who is connected, so it is for operators and Prometheus only.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::jiff::Timestamp;
use maglor_xds::Kind;
use maglor_xds::decode::DecodeError;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::graph::Graphs;
use crate::identity::authority::Watched;
use crate::identity::secret::Progress;
use crate::metrics::Metrics;
use crate::query::Query;
use crate::serve::Table;

const INDEX: &str = "\
GET  /metrics    Prometheus metrics
GET  /ready      200 once all resources are known and proxies are served
GET  /live       200 while the process works
GET  /sessions   who is connected, what they ask for, what they have refused (JSON)
GET  /receipts   the last hundred changes: who has them, how long it took (JSON); ?all: all that are kept
GET  /resources  what proxies can ask for (JSON); ?kind=KIND: of that kind; ?kind=KIND&name=NAME: one, in the
                 words of the configuration; ?kind=KIND&full: all of them so;
                 kinds: cluster, endpoints, listener, routes, inbound
GET  /graph      who calls whom, as far as this replica has heard (JSON); ?parts: by proxy; ?proxies: what each
                 proxy sends in all; ?history: snapshots of a day, a minute apart
GET  /shared     proxies that groups of Services share, and the ports on which they listen (JSON)
GET  /trust      the authority: its roots, where a rotation is, whose proxies do not trust it yet (JSON)
";

/// What the admin server shows.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) table: Table,
    /// The communication graph.
    pub(crate) graphs: Arc<Graphs>,
    /// All resources are known.
    pub(crate) whole: Arc<AtomicBool>,
    /// The API server can ask the webhook, or is not told to.
    pub(crate) webhook: Arc<AtomicBool>,
    /// What certifies, and where a rotation is; `None` in plain text.
    pub(crate) identity: Option<(Watched, watch::Receiver<Option<Progress>>)>,
}

/// Answers until it is dropped.
pub(crate) async fn serve(socket: TcpListener, admin: Admin) {
    loop {
        let Ok((tcp, _)) = socket.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let admin = admin.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let response = admin.answer(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(tcp), service);
            if let Err(error) = served.await {
                tracing::debug!(%error, "admin connection failed");
            }
        });
    }
}

impl Admin {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        }
        let query = Query::of(request.uri().query());
        match request.uri().path() {
            "/" => text(StatusCode::OK, INDEX.to_owned()),
            "/live" => text(StatusCode::OK, "live\n".to_owned()),
            "/metrics" => {
                if let Some((_, progress)) = &self.identity
                    && let Some(progress) = &*progress.borrow()
                {
                    self.metrics.rotation(progress.phase);
                }
                let mut response = text(StatusCode::OK, self.metrics.encode(&self.table));
                let kind =
                    header::HeaderValue::from_static(maglor_telemetry::metrics::CONTENT_TYPE);
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                response
            }
            // Relaxed: nothing else is read because of it.
            "/ready" => {
                let whole = self.whole.load(Ordering::Relaxed);
                let (status, why) = match (whole, self.webhook.load(Ordering::Relaxed)) {
                    (true, true) => (StatusCode::OK, "ready\n"),
                    (false, _) => (
                        StatusCode::SERVICE_UNAVAILABLE,
                        "not all resources are known yet, or there is no authority\n",
                    ),
                    (true, false) => (
                        StatusCode::SERVICE_UNAVAILABLE,
                        "the API server does not know the webhook's certificate yet\n",
                    ),
                };
                text(status, why.to_owned())
            }
            "/sessions" => values(&self.table.sessions()),
            "/receipts" => values(&self.table.receipts(query.has("all"))),
            "/resources" => self.resources(&query),
            "/graph" => self.graph(&query),
            "/shared" => value(&json!(self.table.shared_proxies())),
            "/trust" => self.trust(),
            _ => text(StatusCode::NOT_FOUND, INDEX.to_owned()),
        }
    }
}

impl Admin {
    fn graph(&self, query: &Query<'_>) -> Response<Full<Bytes>> {
        if query.is_empty() {
            value(&json!(self.graphs.snapshot()))
        } else if query.has("history") {
            value(&json!({"snapshots": self.graphs.history()}))
        } else if query.has("parts") {
            value(&json!(self.graphs.parts()))
        } else if query.has("proxies") {
            value(&json!(self.graphs.proxies()))
        } else if query.has("called") {
            value(&json!(self.graphs.called_here()))
        } else if query.has("delays") {
            value(&json!(self.graphs.delays()))
        } else {
            let what = "nothing, `called`, `delays`, `history`, `parts` or `proxies`\n";
            text(StatusCode::BAD_REQUEST, what.to_owned())
        }
    }

    fn trust(&self) -> Response<Full<Bytes>> {
        let Some((ca, progress)) = &self.identity else {
            return text(
                StatusCode::NOT_FOUND,
                "plain text: there is no authority\n".to_owned(),
            );
        };
        let Some(ca) = ca.borrow().clone() else {
            let why = "there is no authority yet\n";
            return text(StatusCode::SERVICE_UNAVAILABLE, why.to_owned());
        };
        let progress = progress.borrow().clone();
        let clients = self.table.trusting();
        let behind = clients.iter().filter(|(_, holds)| !holds);
        value(&json!({
            "trust_domain": ca.authority.trust_domain().as_str(),
            "roots": ca.bundle.certificates().len(),
            "signs_until": Timestamp::try_from(ca.authority.expires()).ok().map(|time| time.to_string()),
            "rotation": progress.map(|progress| json!({
                "phase": progress.phase.word(),
                "since": progress.since.to_string(),
                "missing": progress.missing,
            })),
            "clients": clients.len(),
            "clients_behind": behind.map(|(node, _)| &**node).collect::<Vec<_>>(),
        }))
    }

    fn resources(&self, query: &Query<'_>) -> Response<Full<Bytes>> {
        let kind = query.value("kind").map(|wanted| {
            let mut kinds = Kind::ALL.into_iter();
            kinds.find(|kind| kind.to_string() == wanted)
        });
        let kind = match kind {
            Some(None) => {
                let what = "kind: one of cluster, endpoints, listener, routes, inbound\n";
                return text(StatusCode::BAD_REQUEST, what.to_owned());
            }
            Some(Some(kind)) => kind,
            None => return values(&self.table.resources(None)),
        };
        let Some(name) = query.value("name") else {
            return match query.has("full") {
                true => found(
                    self.table.all_of(kind).map(|all| Some(all.into())),
                    kind,
                    "",
                ),
                false => values(&self.table.resources(Some(kind))),
            };
        };
        found(self.table.resource(kind, name), kind, name)
    }
}

fn found(
    resource: Result<Option<Value>, DecodeError>,
    kind: Kind,
    name: &str,
) -> Response<Full<Bytes>> {
    match resource {
        Ok(Some(resource)) => value(&resource),
        Ok(None) => text(StatusCode::NOT_FOUND, format!("no {kind} `{name}`\n")),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
}

fn values(list: &[Value]) -> Response<Full<Bytes>> {
    value(&json!(list))
}

fn value(value: &Value) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::OK, format!("{value:#}\n"));
    let kind = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
