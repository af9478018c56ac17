//! The state of the mesh for the dashboard ([`page`]): the graph of the last seconds, published resources,
//! receipts, and the decisions of operators.
//!
//! A replica has the reports of the proxies that are connected to it; those of the other replicas are requested every
//! two seconds while there are viewers, and every ten seconds for the history.

#[cfg(feature = "kubernetes")]
mod decisions;
mod details;
mod moves;
#[cfg(feature = "kubernetes")]
mod other_replicas;
pub mod page;
#[cfg(feature = "kubernetes")]
mod port_forward;
#[cfg(feature = "kubernetes")]
mod review;
mod serve;
mod views;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::dashboard::page::{
    About, AdminPort, Details, Mesh, Move, Permissions, Proxies, Source, Taps, View,
};
use maglor_xds::server::{Delivery, Receipt};
use serde_json::{Value, json};

#[cfg(feature = "kubernetes")]
pub(crate) use self::decisions::watch;
#[cfg(feature = "kubernetes")]
pub(crate) use self::port_forward::PortForwards;
#[cfg(feature = "kubernetes")]
pub(crate) use self::review::Reviews;
pub use self::serve::Options;
pub(crate) use self::serve::serve;
use crate::graph::parts::Part;
use crate::graph::{Graphs, Recent};
use crate::resource_server::Table;

/// Why live requests are not available without Kubernetes.
const NO_TAPS: &str = "No admin port of a proxy is known: name the proxies by `maglor-controller --dashboard-proxy \
                       NAME=ADDR`.";

/// The decisions of operators with their reasons.
pub(crate) trait Decisions: Send + Sync {
    /// Returns a number that changes with the decisions.
    fn version(&self) -> u64;

    /// Returns the statuses as objects, ordered by kind and name.
    fn all(&self) -> Vec<Value>;

    /// Returns the planned moves of all placement policies; `None` if there is no policy with a status.
    fn moves(&self) -> Option<Vec<Move>>;
}

/// What a cluster adds to the data; nothing without Kubernetes.
#[derive(Default)]
pub(crate) struct Origin {
    /// The name of this replica.
    pub(crate) replica: Option<String>,
    /// The decisions of operators.
    pub(crate) decisions: Option<Arc<dyn Decisions>>,
    /// Access to the admin ports of proxies.
    pub(crate) permissions: Option<Arc<dyn Permissions>>,
}

/// The source of the dashboard's data.
pub(crate) struct Feed {
    graphs: Arc<Graphs>,
    table: Table,
    replica: Option<String>,
    /// `None` without Kubernetes, where no operator runs.
    decisions: Option<Arc<dyn Decisions>>,
    /// The moves of a placement that is computed from the graph ([`Feed::propose`]).
    proposal: Mutex<Option<Vec<Move>>>,
    /// Proxies whose admin ports can be reached at addresses.
    proxies: Proxies,
    /// Access to the admin ports of a cluster; `None` without Kubernetes.
    permissions: Option<Arc<dyn Permissions>>,
    /// The observations of other replicas.
    others: Mutex<Vec<Vec<Part>>>,
    watched: Mutex<bool>,
    /// The Unix time of the start of the server's clock, in seconds; `None` until it is first needed.
    epoch: Mutex<Option<f64>>,
}

impl Feed {
    pub(crate) fn new(
        graphs: &Arc<Graphs>,
        table: &Table,
        origin: Origin,
        proxies: Vec<(String, SocketAddr)>,
    ) -> Self {
        let proxies = proxies.into_iter();
        let proxies = proxies.map(|(name, address)| (name, AdminPort::At(address)));
        Self {
            graphs: Arc::clone(graphs),
            table: table.clone(),
            replica: origin.replica,
            decisions: origin.decisions,
            permissions: origin.permissions,
            proposal: Mutex::default(),
            proxies: proxies.collect(),
            others: Mutex::default(),
            watched: Mutex::default(),
            epoch: Mutex::default(),
        }
    }

    fn recent(&self) -> Recent {
        let others = locked(&self.others).clone();
        self.graphs.recent(others)
    }

    /// Returns a time of the server's clock in Unix seconds.
    fn unix(&self, at: maglor_balance::Time, now: maglor_balance::Time) -> f64 {
        let since = |at: maglor_balance::Time| at.saturating_since(maglor_balance::Time::ZERO);
        // Computed once, so that the time of a change stays the same.
        let epoch = *locked(&self.epoch).get_or_insert_with(|| {
            let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            unix.unwrap_or_default().as_secs_f64() - since(now).as_secs_f64()
        });
        ((epoch + since(at).as_secs_f64()) * 1000.0).round() / 1000.0
    }

    fn receipt(&self, receipt: &Receipt, now: maglor_balance::Time) -> Value {
        let millis = |time: Duration| (time.as_secs_f64() * 1e5).round() / 100.0;
        let deliveries = receipt.deliveries.iter().map(|delivery: &Delivery| {
            let since = |at: maglor_balance::Time| millis(at.saturating_since(receipt.made));
            let mut value = json!({"node": &*delivery.node, "sent_ms": since(delivery.sent)});
            if let Some((at, result)) = &delivery.outcome {
                value["answered_ms"] = since(*at).into();
                if let Err(reason) = result {
                    value["refused"] = (**reason).into();
                }
            }
            value
        });
        let mut value = json!({
            "change": receipt.change.0,
            "kind": receipt.kind.to_string(),
            "name": &*receipt.name,
            "at": self.unix(receipt.made, now),
            "complete": receipt.is_complete(),
            "deliveries": deliveries.collect::<Vec<_>>(),
        });
        if let Some(took) = receipt.took() {
            value["took_ms"] = millis(took).into();
        }
        value
    }
}

impl Source for Feed {
    fn about(&self) -> About {
        About {
            version: env!("CARGO_PKG_VERSION"),
            source: if self.replica.is_some() {
                "kubernetes"
            } else {
                "folder"
            },
            replica: self.replica.clone(),
        }
    }

    fn mesh(&self, view: View) -> Mesh {
        let recent = self.recent();
        let topology = self.graphs.topology();
        let mut mesh = match view {
            View::Node => views::nodes(&recent, &topology),
            View::Service => views::services(&recent, &topology),
            View::Workload => views::workloads(&recent, &topology),
        };
        mesh.window = recent.window;
        mesh.receipts = self.table.last_change();
        mesh.moves = match &self.decisions {
            Some(decisions) => {
                mesh.decisions = decisions.version();
                decisions.moves()
            }
            // Without viewers, only the history is recorded, which has no moves.
            None if *locked(&self.watched) => locked(&self.proposal).clone(),
            None => None,
        };
        mesh
    }

    fn details(&self, service: &str) -> Option<Details> {
        let topology = self.graphs.topology();
        let parts = self.graphs.recent(locked(&self.others).clone()).parts;
        topology
            .vertices
            .contains_key(service)
            .then(|| details::of(service, &topology, &self.table, &parts))
    }

    fn receipts(&self) -> Vec<Value> {
        let (receipts, now) = self.table.changes();
        receipts.iter().map(|one| self.receipt(one, now)).collect()
    }

    fn decisions(&self) -> Vec<Value> {
        let decisions = self.decisions.as_ref();
        decisions
            .map(|decisions| decisions.all())
            .unwrap_or_default()
    }

    fn interval(&self) -> Option<Duration> {
        self.graphs.report_interval()
    }

    fn taps(&self) -> Result<Taps, &'static str> {
        match &self.permissions {
            // Addresses are named by an operator who wants every viewer to use them.
            _ if !self.proxies.is_empty() => Ok(Taps::Open(self.proxies.clone())),
            Some(permissions) => Ok(Taps::Personal(Arc::clone(permissions))),
            None => Err(NO_TAPS),
        }
    }

    fn vertex_of_proxy(&self, proxy: &str) -> Option<String> {
        Some(self.graphs.topology().vertex_of_node(proxy))
    }

    fn vertex_of_cluster(&self, cluster: &str) -> Option<String> {
        self.graphs.topology().vertex_of_cluster(cluster)
    }

    fn set_watched(&self, watched: bool) {
        *locked(&self.watched) = watched;
        self.graphs.set_watched(watched);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
