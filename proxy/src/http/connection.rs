//! The state of one client connection, and of one request on this connection that is forwarded to a cluster.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Version;
use maglor_config::listener::HttpFilter;
use maglor_config::route::{Forward, HostRewrite};
use tokio::time::Instant;

use super::client::Client;
use crate::mesh::load_feedback::upstreams::Upstreams;
use crate::protocol::fields::Known;
use crate::protocol::http1::Limits;
use crate::protocol::message::{Interim, ORIGINAL_HTTP1, Request};
use crate::protocol::proxy_protocol::Addresses;
use crate::routing::listener::HttpChain;
use crate::routing::route::Route;
use crate::runtime::timers::Timer;
use crate::runtime::worker::{Slot, Worker};
use crate::telemetry::record::Record;
use crate::upstream::{Cluster, Sender, Target};

/// How long a connection that must end (drain, changed listener, age) still accepts requests that the client sent
/// before it could know of the end.
pub(super) const LEAVE_AFTER: Duration = Duration::from_secs(1);

/// The handle of one client connection on its filter chain.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) worker: Rc<Worker>,
    pub(super) upstreams: Rc<Upstreams>,
    pub(super) chain: Arc<HttpChain>,
    pub(crate) client: Client,
    /// The address that the client connected to; `None` for a Unix socket.
    pub(crate) destination: Option<SocketAddr>,
    /// Whether this is the original destination of a connection that was redirected here.
    pub(super) redirected: bool,
    /// When the connection reaches its maximum age; `None` if the age is not limited.
    pub(super) expires: Option<Instant>,
    pub(super) expired: Cell<bool>,
    /// The connection's entry in the worker's list of connections.
    pub(super) slot: Slot,
    /// Whether a request has been received.
    pub(super) has_requests: Cell<bool>,
}

/// Properties of the connection that a request needs.
pub(crate) struct RequestContext {
    pub(crate) started: Instant,
    pub(crate) timer: Timer,
    /// Receiver of informational responses; `None` if they are dropped.
    pub(crate) interim: Option<Rc<dyn Interim>>,
}

impl Service {
    pub(crate) fn new(
        (worker, upstreams): (&Rc<Worker>, &Rc<Upstreams>),
        chain: Arc<HttpChain>,
        client: Client,
        (destination, redirected): (Option<SocketAddr>, bool),
        slot: Slot,
    ) -> Rc<Self> {
        let age = chain.settings.max_connection_age;
        // Connections that were opened together should not end together.
        let jitter = worker.with_rng(|rng| 0.9 + 0.2 * rng.unit());
        let expires = age.map(|age| Instant::now() + age.mul_f64(jitter));
        let worker = Rc::clone(worker);
        let upstreams = Rc::clone(upstreams);
        Rc::new(Self {
            worker,
            upstreams,
            chain,
            client,
            destination,
            redirected,
            expires,
            expired: Cell::new(false),
            slot,
            has_requests: Cell::new(false),
        })
    }

    /// Returns the addresses of the client's connection; `None` for a Unix socket.
    pub(crate) fn ends(&self) -> Option<Addresses> {
        Some(Addresses {
            source: self.client.address.socket()?,
            destination: self.destination?,
        })
    }

    /// Returns the original destination; `None` if the connection was not redirected here.
    pub(super) fn original(&self) -> Option<SocketAddr> {
        self.destination.filter(|_| self.redirected)
    }

    pub(crate) fn settings(&self) -> &HttpFilter {
        &self.chain.settings
    }

    pub(crate) fn limits(&self) -> Limits {
        let settings = self.settings();
        Limits {
            bytes: settings.max_header_bytes,
            headers: settings.max_headers,
        }
    }

    /// Returns when the connection reaches its maximum age; `None` if the age is not limited.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// Returns whether the connection should end when its current requests have been answered.
    pub(crate) fn is_draining(&self) -> bool {
        // Relaxed: a connection that misses the flag is woken again or sees it at its next request.
        self.worker.is_draining()
            || self.chain.retired.load(Ordering::Relaxed)
            || self.expired.get()
    }

    /// Returns whether clients are outside of the mesh, so that their HTTP version says nothing about that of
    /// servers.
    pub(super) fn is_edge(&self) -> bool {
        let on_demand = self.chain.on_demand.as_ref();
        on_demand.is_some_and(|one| one.settings.by_virtual_host)
    }

    /// Returns the HTTP version of a request's sender, if another proxy of the mesh has forwarded the request over
    /// HTTP/2. The sender's application need not support a later version.
    pub(super) fn original_version(&self, request: &Request) -> Option<Version> {
        let version = request.fields.get(Known::XMaglorHttpVersion)?;
        (version == ORIGINAL_HTTP1.as_bytes() && self.client.peer().is_some())
            .then_some(Version::HTTP_11)
    }
}

/// A protocol to switch to, as the client names it.
pub(crate) struct Upgrade(pub(crate) Vec<u8>);

/// A request that a route forwards to an endpoint.
pub(crate) struct Hop<'a> {
    pub(crate) service: &'a Service,
    pub(crate) route: &'a Route,
    pub(crate) forward: &'a Forward,
    pub(crate) context: &'a RequestContext,
    /// The protocol to switch to; `None` if the client does not ask for an upgrade or the listener does not allow it.
    /// Boxed: every waiting request reserves the space.
    pub(crate) upgrade: Option<Box<Upgrade>>,
    /// The request's record; `None` if it has no reader.
    pub(crate) record: Option<Rc<Record>>,
}

impl Hop<'_> {
    /// Sets the request's host to the endpoint's, if the route is configured to do so.
    pub(super) fn rewrite_host(&self, request: &mut Request, target: &Target) {
        match &self.forward.host_rewrite {
            Some(HostRewrite::Literal(value)) => {
                request.fields.set(Known::Host, value.as_bytes());
            }
            None if request.fields.contains(Known::Host) => {}
            Some(HostRewrite::Endpoint) | None => {
                request
                    .fields
                    .set(Known::Host, target.authority().as_bytes());
            }
        }
    }

    /// Returns both addresses of the client's connection for a cluster whose endpoints get a PROXY header.
    pub(super) fn ends(&self, cluster: &Cluster) -> Option<Box<Addresses>> {
        cluster.config().proxy_protocol?;
        self.service.ends().map(Box::new)
    }

    /// Returns a sender of requests to an endpoint.
    pub(super) fn sender<'b>(
        &'b self,
        cluster: &'b Arc<Cluster>,
        target: &'b Arc<Target>,
        now: Instant,
    ) -> Sender<'b> {
        Sender {
            cluster,
            target,
            pools: &self.service.upstreams.pools,
            now,
            ends: self.ends(cluster),
            interim: self.context.interim.as_deref(),
            noted: None,
        }
    }
}
