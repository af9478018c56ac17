//! The admin server: `/metrics /ready /live /config /clusters /listeners /drain /logging`.
//!
//! Runs on the control thread, so that scraping it never delays a request. It is meant for
//! operators on a private address: it shows configuration and can drain the proxy.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use maglor_balance::guard::concurrency::ConcurrencyLimit;
use maglor_telemetry::logs::LogHandle;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::app::SharedApp;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const INDEX: &str = "\
GET  /metrics            Prometheus metrics
GET  /ready              200 when requests are taken, 503 with the reason when not
GET  /live               200 while the process works
GET  /config             the configuration in force (YAML)
GET  /clusters           endpoints, health and outstanding requests (JSON)
GET  /listeners          listeners and their bound addresses (JSON)
POST /drain              stop taking connections, let open ones end, then exit
GET  /logging            the log level
PUT  /logging?level=L    change it: error, warn, info, debug, trace, or target=level,...
";

/// What the admin server works on.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) app: SharedApp,
    pub(crate) log: Option<LogHandle>,
    /// Told when somebody asks for a drain.
    pub(crate) drain: Rc<Notify>,
}

/// Answers until the process ends.
pub(crate) async fn serve(socket: TcpListener, admin: Admin) {
    loop {
        let tcp = match socket.accept().await {
            Ok((tcp, _)) => tcp,
            Err(error) => {
                tracing::warn!(%error, "admin: accept failed");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let admin = admin.clone();
        tokio::task::spawn_local(async move {
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

type Answer = Response<Full<Bytes>>;

impl Admin {
    fn answer(&self, request: &Request<Incoming>) -> Answer {
        let get = matches!(*request.method(), Method::GET | Method::HEAD);
        let change = matches!(*request.method(), Method::POST | Method::PUT);
        match request.uri().path() {
            "/" if get => answer(StatusCode::OK, TEXT, INDEX),
            "/clusters" if get => json_answer(&self.clusters()),
            "/config" if get => self.config(),
            "/drain" if change => {
                self.drain.notify_one();
                answer(StatusCode::OK, TEXT, "draining\n")
            }
            "/listeners" if get => json_answer(&self.listeners()),
            "/live" if get => answer(StatusCode::OK, TEXT, "live\n"),
            "/logging" if get || change => self.logging(request.uri().query()),
            "/metrics" if get => answer(
                StatusCode::OK,
                maglor_telemetry::metrics::CONTENT_TYPE,
                self.app.borrow().metrics(),
            ),
            "/ready" if get => self.ready(),
            "/" | "/clusters" | "/config" | "/drain" | "/listeners" | "/live" | "/logging"
            | "/metrics" | "/ready" => answer(
                StatusCode::METHOD_NOT_ALLOWED,
                TEXT,
                "wrong method; see GET /\n",
            ),
            _ => answer(
                StatusCode::NOT_FOUND,
                TEXT,
                format!("no such page; there are:\n{INDEX}"),
            ),
        }
    }

    fn ready(&self) -> Answer {
        let app = self.app.borrow();
        if app.is_draining() {
            return answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "draining\n");
        }
        if let Some(why) = app.without_identity() {
            let text = format!("not ready: no identity yet: {why}\n");
            return answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, text);
        }
        if let Some(workload) = app.unknown_workload() {
            let why =
                format!("not ready: the control plane has said nothing of `{workload}` yet\n");
            return answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, why);
        }
        if app.shared().metrics.xds.cached.value() == 1 {
            let text =
                "ready, by what an earlier process has kept: the control plane does not answer\n";
            return answer(StatusCode::OK, TEXT, text);
        }
        answer(StatusCode::OK, TEXT, "ready\n")
    }

    fn config(&self) -> Answer {
        answer(StatusCode::OK, "application/yaml", self.app.borrow().yaml())
    }

    fn listeners(&self) -> Value {
        let addresses = self.app.borrow().addresses();
        let pairs = addresses
            .into_iter()
            .map(|(name, bound)| (name.to_string(), json!(bound)));
        Value::Object(pairs.collect())
    }

    fn clusters(&self) -> Value {
        let app = self.app.borrow();
        let mut clusters: Vec<_> = app.clusters().iter().collect();
        clusters.sort_by_key(|cluster| Rc::from(cluster.name().as_ref()) as Rc<str>);
        let describe = |cluster: &&std::sync::Arc<crate::upstream::Cluster>| {
            let endpoints = cluster.endpoints();
            let view = endpoints.balancer().view();
            let guard = cluster.guard();
            let each = endpoints.targets().iter().map(|target| {
                json!({
                    "address": target.address,
                    "host": target.host.as_deref(),
                    "outstanding": target.stats.outstanding(),
                    "healthy": target.stats.is_healthy(),
                    "ejected": target.stats.is_ejected(),
                    "draining": target.stats.is_draining(),
                })
            });
            json!({
                "name": cluster.name().as_ref(),
                "policy": cluster.config().policy.to_string(),
                "panic": view.in_panic(),
                "available": view.available(),
                "requests": guard.requests.active(),
                "waiting": guard.requests.waiting(),
                "circuit_breaker": guard.breaker().map(|breaker| breaker.phase().name()),
                "concurrency_limit": guard.concurrency().map(ConcurrencyLimit::limit),
                "endpoints": each.collect::<Vec<_>>(),
            })
        };
        json!({ "clusters": clusters.iter().map(describe).collect::<Vec<_>>() })
    }

    fn logging(&self, query: Option<&str>) -> Answer {
        let Some(log) = &self.log else {
            return answer(
                StatusCode::NOT_IMPLEMENTED,
                TEXT,
                "the log is not ours to change\n",
            );
        };
        let level = query.and_then(|query| crate::route::query_value(query, "level"));
        let Some(level) = level else {
            return answer(StatusCode::OK, TEXT, format!("{}\n", log.directives()));
        };
        match log.set(&level) {
            Ok(()) => {
                tracing::info!(%level, "log level changed");
                answer(StatusCode::OK, TEXT, format!("{level}\n"))
            }
            Err(error) => answer(StatusCode::BAD_REQUEST, TEXT, format!("{error}\n")),
        }
    }
}

fn json_answer(value: &Value) -> Answer {
    answer(StatusCode::OK, JSON, format!("{value:#}\n"))
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let kind = http::HeaderValue::from_static(kind);
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

/// Binds the admin port.
///
/// # Errors
/// When it is taken.
pub(crate) async fn bind(address: std::net::SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}
