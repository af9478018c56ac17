//! The steps of a request without sockets, for benchmarks only.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use maglor_balance::{Rng, Time};
use maglor_config::Filter;
use maglor_config::listener::HttpFilter;

use crate::control::build::{self, Sources};
use crate::http::client::Client;
use crate::http::headers;
use crate::protocol::http1::{self, Limits, RequestHead};
use crate::protocol::message::Request;
use crate::routing::route::Table;
use crate::telemetry::metrics::Metrics;
use crate::upstream::Clusters;

const LIMITS: Limits = Limits {
    bytes: 65_536,
    headers: 128,
};

/// The first HTTP listener of a configuration, ready to route requests.
pub struct Router {
    table: Table,
    settings: Arc<HttpFilter>,
    client: Client,
    rng: Rng,
    _metrics: Metrics,
}

/// The head of a request.
pub struct Head(Request);

impl Router {
    /// Compiles a configuration; `None` if it is not valid or has no HTTP listener.
    pub fn new(yaml: &str) -> Option<Self> {
        let config = maglor_config::parse(yaml, "bench.yaml").ok()?.config;
        let metrics = Metrics::new(1);
        let before = Clusters::default();
        let mut sources = Sources::new(None);
        let clusters =
            build::clusters(&config, &before, false, &mut sources, &metrics, Time::ZERO).ok()?;
        let listener = config.listeners.first()?;
        let Filter::Http(settings) = &listener.filter_chains.first()?.filter else {
            return None;
        };
        let (name, routes) = (&listener.name, &settings.routes);
        let table = Table::compile(routes, name, &clusters, &metrics, None, None);
        let client = Client::new(
            SocketAddr::from(([192, 0, 2, 7], 40_000)).into(),
            false,
            None,
        );
        let settings = Arc::new(HttpFilter::clone(settings));
        Some(Self {
            table,
            settings,
            client,
            rng: Rng::seed(1),
            _metrics: metrics,
        })
    }

    /// Returns the name of the route that matches a request; `None` if no route matches.
    pub fn route(&self, head: &Head) -> Option<&str> {
        self.table
            .find(&head.0)
            .map(|(_, route)| route.config.name.as_ref())
    }

    /// Returns the name of a host's first route; `None` if the host is unknown or has no routes.
    pub fn host(&self, name: &[u8]) -> Option<&str> {
        let host = self.table.host(name)?;
        host.routes.first().map(|route| route.config.name.as_ref())
    }

    /// Applies the header changes that every forwarded request gets.
    pub fn rewrite(&mut self, head: &mut Head) {
        head.0.fields.remove_hop_by_hop();
        headers::add_forwarded(&mut head.0, &self.client, &self.settings);
        headers::set_request_id(&mut head.0.fields, &self.settings, &mut self.rng);
    }
}

impl Head {
    /// Parses a whole head; `None` if it is incomplete or invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, _) = http1::parse_request(bytes, LIMITS).ok()??;
        let RequestHead {
            method,
            target,
            version,
            fields,
            ..
        } = head;
        Some(Self(Request {
            method,
            target,
            version,
            fields,
        }))
    }

    /// Encodes the head as it is sent to an endpoint.
    pub fn encode(&self, out: &mut BytesMut) {
        let Request { method, fields, .. } = &self.0;
        http1::encode_request(method, self.0.path_and_query(), fields, out);
    }
}
