//! The admin server: `/metrics /ready /live /config /clusters /listeners /probe /routes /tap /why /drain /logging`.
//!
//! Runs on the control thread, so that scraping it never delays a request. [`maglor_telemetry::admin`] decides which
//! peers may get which pages, and limits the number of connections.

mod clusters;
mod routes;
mod why;

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use maglor_config::Probe;
use maglor_identity::Unusable;
use maglor_telemetry::admin::{Limits, Methods, Page, Server};
use maglor_telemetry::logs::LogHandle;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::control::app::SharedApp;
use crate::control::probes;
use crate::mesh::identity::Missing;
use crate::telemetry::observers::{Lines, TapError};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const INDEX: &str = "\
For all clients:
GET  /metrics            Prometheus metrics, in OpenMetrics on request
GET  /ready              200 if the proxy accepts requests, else 503 with the reason
GET  /live               200 while the process responds
GET  /probe/NAME         run a health probe of the application (admin.probes)
Over loopback only (kubectl port-forward), unless admin.remote_access is `full`:
GET  /config             the configuration in force (YAML)
GET  /clusters           endpoints, health and outstanding requests (JSON)
GET  /listeners          listeners and their bound addresses (JSON)
GET  /routes             routes in force, including those of the control plane (JSON)
GET  /tap?FILTERS        stream finished requests, one JSON object per line; filters: method=GET,
                         path=/PREFIX, status=503 or 5xx, peer=PART-OF-ID, direction=inbound|outbound,
                         rate=LINES-PER-SECOND (default 100)
GET  /why?FILTERS        stories of failed and slow requests, newest first (JSON); filters: id=REQUEST-ID or a trace
                         identifier, route=PART, cluster=NAME, flag=UF, client=PART, slowest=true, limit=N (default 100)
POST /drain              stop accepting connections, wait until the open ones end, and exit
GET  /logging            the log level
PUT  /logging?level=L    set the log level: error, warn, info, debug, trace, or target=level,...
";

const PAGES: [Page; 13] = [
    Page::public("/live"),
    Page::public("/metrics"),
    Page::public("/probe/"),
    Page::public("/ready"),
    Page::operators("/", Methods::Read),
    Page::operators("/clusters", Methods::Read),
    Page::operators("/config", Methods::Read),
    Page::operators("/drain", Methods::Change),
    Page::operators("/listeners", Methods::Read),
    Page::operators("/logging", Methods::ReadAndChange),
    Page::operators("/routes", Methods::Read),
    Page::operators("/tap", Methods::Read),
    Page::operators("/why", Methods::Read),
];

/// State that the admin pages read and change.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) app: SharedApp,
    pub(crate) log: Option<LogHandle>,
    /// Notified when a drain is requested.
    pub(crate) drain: Rc<Notify>,
    /// Probes of the application, by name.
    pub(crate) probes: Rc<BTreeMap<String, Probe>>,
}

/// Serves the admin pages until the process ends. If `opened` is set, every peer may get the pages for operators.
pub(crate) async fn serve(socket: TcpListener, admin: Admin, opened: bool, limits: Limits) {
    let mut server = Server::new(socket, &PAGES, opened, limits);
    loop {
        let accepted = server.accept().await;
        let admin = admin.clone();
        tokio::task::spawn_local(accepted.serve(move |request| {
            let admin = admin.clone();
            async move { admin.handle(&request).await }
        }));
    }
}

type Answer = Response<Either<Full<Bytes>, Lines>>;

impl Admin {
    async fn handle(&self, request: &Request<Incoming>) -> Answer {
        let Some(name) = request.uri().path().strip_prefix("/probe/") else {
            return self.answer(request);
        };
        let Some(probe) = self.probes.get(name) else {
            return answer(StatusCode::NOT_FOUND, TEXT, "unknown probe\n");
        };
        let (status, said) = probes::ask(probe, request.headers()).await;
        answer(status, TEXT, said)
    }

    /// Answers a request whose page and method were already checked against [`PAGES`].
    fn answer(&self, request: &Request<Incoming>) -> Answer {
        let change = matches!(*request.method(), Method::POST | Method::PUT);
        match request.uri().path() {
            "/clusters" => json_answer(&clusters::describe(&self.app.borrow())),
            "/config" => self.config(),
            "/drain" => {
                self.drain.notify_one();
                answer(StatusCode::OK, TEXT, "draining\n")
            }
            "/listeners" => json_answer(&self.listeners()),
            "/live" => answer(StatusCode::OK, TEXT, "live\n"),
            "/logging" if change => self.set_log_level(request.uri().query()),
            "/logging" => self.log_level(),
            "/metrics" => self.metrics(request.headers()),
            "/ready" => self.ready(),
            "/routes" => json_answer(&routes::describe(&self.app.borrow().listeners())),
            "/tap" => self.tap(request.uri().query()),
            "/why" => self.why(request.uri().query()),
            _ => answer(StatusCode::OK, TEXT, INDEX),
        }
    }

    fn metrics(&self, headers: &HeaderMap) -> Answer {
        let value = |name| maglor_telemetry::admin::list(headers, name);
        let (accept, encodings) = (value(header::ACCEPT), value(header::ACCEPT_ENCODING));
        let exposition = self.app.borrow().metrics(&accept, &encodings);
        let headers = exposition.headers();
        let mut answer = Response::new(Either::Left(Full::new(exposition.body.into())));
        for (name, value) in headers {
            let value = HeaderValue::from_static(value);
            answer.headers_mut().insert(name, value);
        }
        answer
    }

    fn ready(&self) -> Answer {
        let app = self.app.borrow();
        if app.is_draining() {
            return answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "draining\n");
        }
        let mut identity = String::new();
        if let Some(Missing { why, trouble }) = app.without_identity() {
            identity = match why {
                Unusable::Missing => format!("no identity yet: {trouble}"),
                why => format!("the identity is not valid: {why}; renewal: {trouble}"),
            };
            // A proxy that allows plain text continues to serve without an identity.
            if why == Unusable::Missing || app.needs_identity() {
                let text = format!("not ready: {identity}\n");
                return answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, text);
            }
            identity.push('\n');
        }
        if let Some(workload) = app.unknown_workload() {
            let why =
                format!("not ready: waiting for the control plane to configure `{workload}`\n");
            return answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, why);
        }
        if let Some(service) = app.unknown_service() {
            let why =
                format!("not ready: waiting for the control plane to configure `{service}`\n");
            return answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, why);
        }
        if app.shared().metrics.xds.cached.value() == 1 {
            let text = "ready, with cached resources: the control plane is unavailable\n";
            return answer(StatusCode::OK, TEXT, format!("{text}{identity}"));
        }
        answer(StatusCode::OK, TEXT, format!("ready\n{identity}"))
    }

    fn config(&self) -> Answer {
        let yaml = maglor_config::without_credentials(self.app.borrow().yaml());
        answer(StatusCode::OK, "application/yaml", yaml)
    }

    fn listeners(&self) -> Value {
        let addresses = self.app.borrow().addresses();
        let pairs = addresses
            .into_iter()
            .map(|(name, bound)| (name.to_string(), json!(bound)));
        Value::Object(pairs.collect())
    }

    fn tap(&self, query: Option<&str>) -> Answer {
        let app = self.app.borrow();
        let shared = app.shared();
        match shared.observers.tap(query, &shared.memory) {
            Ok(lines) => {
                let mut answer = Response::new(Either::Right(lines));
                let kind = HeaderValue::from_static("application/x-ndjson");
                answer.headers_mut().insert(header::CONTENT_TYPE, kind);
                answer
            }
            Err(error @ TapError::TooMany { .. }) => {
                answer(StatusCode::TOO_MANY_REQUESTS, TEXT, format!("{error}\n"))
            }
            Err(error) => answer(StatusCode::BAD_REQUEST, TEXT, format!("{error}\n")),
        }
    }

    fn why(&self, query: Option<&str>) -> Answer {
        let app = self.app.borrow();
        match why::describe(&app.shared().observers.stories, query.unwrap_or_default()) {
            Ok(stories) => json_answer(&stories),
            Err(error) => answer(StatusCode::BAD_REQUEST, TEXT, format!("{error}\n")),
        }
    }

    fn log_level(&self) -> Answer {
        let level = self.log.as_ref().map(LogHandle::directives);
        level.map_or_else(foreign_log, |level| {
            answer(StatusCode::OK, TEXT, format!("{level}\n"))
        })
    }

    fn set_log_level(&self, query: Option<&str>) -> Answer {
        let Some(log) = &self.log else {
            return foreign_log();
        };
        let level = query.and_then(|query| crate::routing::route::query_value(query, "level"));
        let Some(level) = level else {
            let text = "`level` is missing, as in PUT /logging?level=debug\n";
            return answer(StatusCode::BAD_REQUEST, TEXT, text);
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

fn foreign_log() -> Answer {
    let text = "this process cannot change its log level\n";
    answer(StatusCode::NOT_IMPLEMENTED, TEXT, text)
}

fn json_answer(value: &Value) -> Answer {
    answer(StatusCode::OK, JSON, format!("{value:#}\n"))
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

/// Binds the admin port.
///
/// # Errors
/// If the port is taken.
pub(crate) async fn bind(address: std::net::SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use maglor_telemetry::admin::Audience;

    use super::*;

    /// The tests in `crates/testkit/cluster/tests/admin_ports.rs` take the pages that they attack from the index.
    #[test]
    fn the_index_lists_every_page() {
        let [public, private] = maglor_testkit::listed_pages(INDEX);
        for (listed, audience) in [(public, Audience::Network), (private, Audience::Operators)] {
            let pages = PAGES.iter().filter(|page| page.audience == audience);
            let pages = pages.map(|page| page.path.to_owned());
            let pages: BTreeSet<_> = pages.filter(|path| path != "/").collect();
            assert_eq!(listed, pages);
        }
    }
}
