//! The main loop: applies events to the index, and publishes resources and statuses.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use maglor_identity::TrustDomain;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use super::{AT_ONCE, RunError};
use crate::graph::Graphs;
use crate::index::Changes;
use crate::index::Wanted;
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use crate::proxy_port::Port;
use crate::resource_server::Table;
use crate::source::Event;

/// Interval at which the graph's vertices are updated from the index, which changes more often.
const MAP_EVERY: Duration = Duration::from_secs(1);

/// The content of the ready file, written once proxies are served.
pub(super) struct Ready<'a> {
    pub(super) file: Option<&'a Path>,
    pub(super) listen: Option<SocketAddr>,
    pub(super) admin: Option<SocketAddr>,
    pub(super) dashboard: Option<SocketAddr>,
}

impl Ready<'_> {
    fn write(&self) -> Result<(), RunError> {
        tracing::info!(listen = ?self.listen, admin = ?self.admin, "serving");
        let Some(path) = self.file else { return Ok(()) };
        let text = json!({"listen": self.listen, "admin": self.admin, "dashboard": self.dashboard})
            .to_string();
        // Renamed into place, so that a process that waits for the file never reads a partial one.
        let new = path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
        written.map_err(|source| RunError::ReadyFile {
            path: path.to_owned(),
            source,
        })
    }
}

/// The index, and the services that depend on it.
pub(super) struct Serving {
    pub(super) pipeline: Pipeline,
    pub(super) table: Table,
    pub(super) graphs: Arc<Graphs>,
    /// Whether the graph's vertices match the index.
    pub(super) mapped: bool,
    pub(super) port: Port,
    /// The trust domain of the certificate authority; `None` in plain text.
    pub(super) trust_domain: Option<TrustDomain>,
    /// Whether a warning about a different trust domain in the MeshConfig was logged.
    pub(super) warned: bool,
    pub(super) metrics: Arc<Metrics>,
    pub(super) whole: Arc<AtomicBool>,
    pub(super) statuses: Option<mpsc::UnboundedSender<Wanted>>,
}

impl Serving {
    /// Handles events and clients. Clients are served only once all resources are known.
    pub(super) async fn serve(
        &mut self,
        mut events: mpsc::Receiver<Event>,
        ready: &Ready<'_>,
    ) -> Result<(), RunError> {
        let mut batch = Vec::new();
        let mut serves = false;
        let mut map = tokio::time::interval(MAP_EVERY);
        map.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let reports = self.graphs.interval();
        let mut follow = tokio::time::interval(reports.unwrap_or(MAP_EVERY));
        follow.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if !serves && self.pipeline.is_whole() && self.port.is_open() {
                serves = true;
                // Relaxed: no other data depends on it.
                self.whole.store(true, Ordering::Relaxed);
                ready.write()?;
            }
            tokio::select! {
                count = events.recv_many(&mut batch, AT_ONCE) => {
                    if count == 0 {
                        // The source has ended; its task returns the reason.
                        std::future::pending::<()>().await;
                    }
                    self.take(&mut batch);
                }
                () = self.port.accept(serves) => {}
                _ = map.tick(), if !self.mapped => {
                    self.graphs.set_topology(self.pipeline.index().topology());
                    self.mapped = true;
                }
                _ = follow.tick(), if reports.is_some() => self.follow_callers(),
            }
        }
    }

    /// Warns if the MeshConfig's trust domain, which clients expect, differs from that of the certificate authority.
    fn compare_trust_domains(&mut self) {
        let Some(own) = &self.trust_domain else {
            return;
        };
        let configured = self.pipeline.index().trust_domain();
        let differs = self.pipeline.is_whole() && own.as_str() != configured;
        if differs && !self.warned {
            tracing::error!(
                authority = %own,
                mesh_config = configured,
                "trust domains differ: workloads will not authenticate each other; see --trust-domain"
            );
        }
        self.warned = differs;
    }

    fn take(&mut self, batch: &mut Vec<Event>) {
        let begun = Instant::now();
        for event in batch.iter() {
            self.metrics.took(event);
        }
        let changes = self.pipeline.take(batch.drain(..));
        self.mapped = false;
        self.compare_trust_domains();
        self.publish(changes, begun);
    }

    /// Updates the callers of Services in the index if they are known and have changed significantly, and the calls
    /// expected from new pods.
    fn follow_callers(&mut self) {
        let begun = Instant::now();
        if let Some(callers) = self.graphs.callers() {
            let changes = self.pipeline.set_callers(callers);
            self.publish(changes, begun);
        }
        if let Some(called) = self.graphs.called() {
            let changes = self.pipeline.set_called(called);
            self.publish(changes, begun);
        }
    }

    fn publish(&mut self, changes: Changes, begun: Instant) {
        self.table.place(changes.places);
        for one in &changes.unusable {
            let (resource, route) = (&one.id.name, one.route.as_deref());
            tracing::error!(kind = ?one.id.kind, resource, route, error = one.why, "cannot encode resource; publishing without it");
        }
        let unserved = self.table.publish(&changes.resources);
        let unserved = unserved.saturating_add(changes.unusable.len() as u64);
        self.metrics
            .gave(&changes.resources, unserved, begun.elapsed());
        for (kind, key, status) in changes.statuses {
            let unusable = &self.metrics.on_call.unusable;
            unusable.record(kind, &key, status.as_ref());
            match &self.statuses {
                Some(statuses) => {
                    // The receiver is gone when the process is about to end.
                    let _ = statuses.send((kind, key, status));
                }
                None => {
                    let status = status.map(|status| status.to_json()).unwrap_or_default();
                    tracing::info!(kind = kind.names().1, name = %key, %status, "status changed");
                }
            }
        }
    }
}
