//! The admin server: `/metrics /ready /live /sessions /receipts /resources /graph /shared /trust`.
//!
//! `/ready`, `/live` and `/metrics` are open to every peer. The other pages show names of Services and the connected
//! proxies, and are served over loopback only ([`maglor_telemetry::admin`]). Replicas use another port for requests to each
//! other ([`crate::graph::peers`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use jiff::Timestamp;
use maglor_telemetry::admin::{Limits, Methods, Page, Server};
use maglor_xds::Kind;
use maglor_xds::decode::DecodeError;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::app::threads::Heartbeats;
use crate::graph::Graphs;
use crate::graph::page::{self, text, value};
use crate::identity::authority::Watched;
use crate::identity::rotation::Progress;
use crate::identity::start::Service;
use crate::metrics::Metrics;
use crate::query::Query;
use crate::resource_server::Table;

const INDEX: &str = "\
For all clients:
GET  /metrics    Prometheus metrics, in OpenMetrics on request
GET  /ready      200 once all resources are known and proxies are served
GET  /live       200 while all threads of the process respond
Over loopback only (kubectl port-forward), unless --admin-remote-access is `full`:
GET  /sessions   connected clients, their subscriptions, and the resources that they rejected (JSON)
GET  /receipts   the last 100 changes, with the clients that acknowledged them and the delays (JSON); ?all: all
                 stored changes
GET  /resources  resources that proxies can request (JSON); ?kind=KIND: of that kind; ?kind=KIND&name=NAME: one,
                 as configuration; ?kind=KIND&full: all of that kind, as configuration;
                 kinds: cluster, endpoints, listener, routes, inbound
GET  /graph      calls between services, as reported to this replica (JSON); ?parts: by proxy; ?proxies: total
                 outbound calls of each proxy; ?history: snapshots of one day, one per minute; ?recent: by
                 proxy, over the last seconds
GET  /shared     proxies that groups of Services share, and their listener ports (JSON)
GET  /trust      the authority: roots, phase of the CA rotation, clients that do not trust all roots yet (JSON)
";

const PAGES: [Page; 10] = [
    Page::public("/live"),
    Page::public("/metrics"),
    Page::public("/ready"),
    Page::operators("/", Methods::Read),
    Page::operators("/graph", Methods::Read),
    Page::operators("/receipts", Methods::Read),
    Page::operators("/resources", Methods::Read),
    Page::operators("/sessions", Methods::Read),
    Page::operators("/shared", Methods::Read),
    Page::operators("/trust", Methods::Read),
];

/// The state behind the admin server's pages.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) table: Table,
    /// Communication graphs.
    pub(crate) graphs: Arc<Graphs>,
    /// Whether all resources are known.
    pub(crate) whole: Arc<AtomicBool>,
    /// Whether the API server can call the webhook; true if the webhook is disabled.
    pub(crate) webhook: Arc<AtomicBool>,
    /// Heartbeats of all threads.
    pub(crate) alive: Arc<Heartbeats>,
    /// State of the certificate authority; `None` in plain text.
    pub(crate) identity: Option<Identity>,
}

/// State of the certificate authority.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The current issuer and roots.
    pub(crate) in_force: Watched,
    /// Progress of a CA rotation; `None` if there is none.
    pub(crate) progress: watch::Receiver<Option<Progress>>,
    /// Why the controller has no certificate of its own; `None` if it has one.
    pub(crate) failure: watch::Receiver<Option<String>>,
}

impl Identity {
    /// Returns the state of the identity service.
    pub(crate) fn of(service: &Service) -> Self {
        Self {
            in_force: service.ca.clone(),
            progress: service.progress.clone(),
            failure: service.failure.clone(),
        }
    }

    /// Returns what the xDS port waits for before it serves proxies; `None` if nothing is known to be missing.
    fn missing(&self) -> Option<String> {
        let refused = || self.progress.borrow().as_ref()?.refused.clone();
        match self.in_force.borrow().is_none() {
            true => refused(),
            false => self.failure.borrow().clone(),
        }
    }
}

/// Serves requests until the future is dropped. If `opened`, every peer may get the pages for operators.
pub(crate) async fn serve(socket: TcpListener, admin: Admin, opened: bool) {
    let mut server = Server::new(socket, &PAGES, opened, Limits::default());
    loop {
        let accepted = server.accept().await;
        let admin = admin.clone();
        tokio::spawn(accepted.serve(move |request| {
            let admin = admin.clone();
            async move {
                let query = request.uri().query().unwrap_or_default();
                if request.uri().path() == "/graph" && query.is_empty() {
                    admin.graphs.refresh_usage().await;
                }
                admin.answer(&request)
            }
        }));
    }
}

impl Admin {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let query = Query::of(request.uri().query());
        match request.uri().path() {
            "/live" => match self.alive.late() {
                None => text(StatusCode::OK, "live\n".to_owned()),
                Some(thread) => text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("thread `{thread}` is stalled\n"),
                ),
            },
            "/metrics" => {
                if let Some(identity) = &self.identity
                    && let Some(progress) = &*identity.progress.borrow()
                {
                    self.metrics
                        .rotation(progress.phase, progress.refused.is_some());
                }
                self.exposition(request.headers())
            }
            // Relaxed: no other data depends on it.
            "/ready" => {
                let whole = self.whole.load(Ordering::Relaxed);
                match (whole, self.webhook.load(Ordering::Relaxed)) {
                    (true, true) => text(StatusCode::OK, "ready\n".to_owned()),
                    (false, _) => text(StatusCode::SERVICE_UNAVAILABLE, self.incomplete()),
                    (true, false) => text(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "the certificate of the webhook is not yet registered with the API server\n"
                            .to_owned(),
                    ),
                }
            }
            "/sessions" => values(&self.table.sessions()),
            "/receipts" => values(&self.table.receipts(query.has("all"))),
            "/resources" => self.resources(&query),
            "/graph" => page::graph(&self.graphs, &query),
            "/shared" => page::shared(&self.table),
            "/trust" => self.trust(),
            // The list of pages is in [`PAGES`].
            _ => text(StatusCode::OK, INDEX.to_owned()),
        }
    }
}

impl Admin {
    fn exposition(&self, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let value = |name| maglor_telemetry::admin::list(headers, name);
        let (accept, encodings) = (value(header::ACCEPT), value(header::ACCEPT_ENCODING));
        let exposition = self.metrics.expose(&self.table, &accept, &encodings);
        let headers = exposition.headers();
        let mut response = Response::new(Full::new(exposition.body.into()));
        for (name, value) in headers {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    }

    /// Returns why proxies are not served yet.
    fn incomplete(&self) -> String {
        match self.identity.as_ref().and_then(Identity::missing) {
            Some(missing) => format!("no certificates can be issued: {missing}\n"),
            None => "not all resources are listed yet, or no authority is loaded\n".to_owned(),
        }
    }

    fn trust(&self) -> Response<Full<Bytes>> {
        let Some(identity) = &self.identity else {
            return text(
                StatusCode::NOT_FOUND,
                "TLS is off: there is no authority\n".to_owned(),
            );
        };
        let Some(in_force) = identity.in_force.borrow().clone() else {
            let why = match identity.missing() {
                Some(missing) => format!("no authority is loaded yet: {missing}\n"),
                None => "no authority is loaded yet\n".to_owned(),
            };
            return text(StatusCode::SERVICE_UNAVAILABLE, why);
        };
        let issuer = &in_force.issuer;
        let signs_until = issuer.expires().map(Timestamp::try_from);
        let signs_until = signs_until
            .and_then(Result::ok)
            .map(|time| time.to_string());
        let progress = identity.progress.borrow().clone();
        let clients = self.table.trusting();
        let behind = clients.iter().filter(|(_, holds)| !holds);
        value(&json!({
            "trust_domain": issuer.trust_domain().as_str(),
            "signer": issuer.signer(),
            "roots": in_force.bundle.certificates().len(),
            "signs_until": signs_until,
            "own_certificate_error": *identity.failure.borrow(),
            "rotation": progress.map(|progress| json!({
                "phase": progress.phase.word(),
                "since": progress.since.to_string(),
                "missing": progress.missing,
                "refused": progress.refused,
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
                let what = "kind: expected cluster, endpoints, listener, routes or inbound\n";
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

fn values(list: &[Value]) -> Response<Full<Bytes>> {
    value(&json!(list))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use maglor_telemetry::admin::Audience;

    use super::*;

    /// `crates/testkit/cluster/tests/admin_ports.rs` takes the pages that it attacks from the index.
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
