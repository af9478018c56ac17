//! Load reports to the control plane (LRS) on the connection of its stream: counts and times of requests by
//! cluster.
//!
//! All values are read from counters that exist anyway, at the interval that the control plane asks for. A
//! server that does not accept reports refuses the stream and gets none.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use maglor_telemetry::metrics::Snapshot;
use maglor_xds::Message as _;
use maglor_xds::frame::{Deframer, frame};
use maglor_xds::load::{
    self, ClusterLoad, LoadReport, MAX_ROUND_TRIPS, MutualTls, Range, RoundTrip, Wish,
};
use maglor_xds::proto::envoy::config::core::v3::Node;
use maglor_xds::proto::envoy::service::load_stats::v3::LoadStatsResponse;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::outgoing::Outgoing;
use crate::control::app::{App, SharedApp};
use crate::os::memory;
use crate::protocol::message::Body;
use crate::telemetry::metrics::ClusterTotals;
use crate::upstream::Cluster;
use crate::upstream::grpc::{CallError, Connection};

/// Maximum size of a received message in bytes: some thousand names.
const LONGEST: usize = 256 << 10;

/// Source of the reports, and the values last reported. It outlives connections.
pub(super) struct Reporter {
    app: SharedApp,
    node: Node,
    last: HashMap<Arc<str>, ClusterTotals>,
    since: Instant,
    /// Whether the last report had any load, or none was sent on the present stream.
    had_load: bool,
}

impl Reporter {
    pub(super) fn new(app: SharedApp, node: Node) -> Self {
        Self {
            app,
            node,
            last: HashMap::new(),
            since: Instant::now(),
            had_load: true,
        }
    }

    /// Returns the report that is due; `None` if it is omitted.
    fn due(&mut self, wish: &Wish) -> Option<LoadReport> {
        let report = self.report(wish);
        let had_load = std::mem::replace(&mut self.had_load, !report.clusters.is_empty());
        (!report.may_be_omitted(had_load, wish.interval)).then_some(report)
    }

    /// Returns a report of the traffic since the last report.
    fn report(&mut self, wish: &Wish) -> LoadReport {
        let app = SharedApp::clone(&self.app);
        let now = Instant::now();
        let interval = now - std::mem::replace(&mut self.since, now);
        let clusters = self.counted(&app.borrow(), wish);
        LoadReport {
            interval,
            clusters,
            memory: memory::in_use(),
        }
    }

    fn counted(&mut self, app: &App, wish: &Wish) -> Vec<ClusterLoad> {
        let mut before = std::mem::take(&mut self.last);
        let mut loads = Vec::new();
        for cluster in app.clusters().iter() {
            let name = cluster.name();
            let counts = cluster.metrics().totals();
            let last = before.remove(name).unwrap_or_default();
            let mut load = difference(cluster, &counts, &last);
            self.last.insert(Arc::clone(name), counts);
            let wanted = wish.clusters.as_ref();
            let wanted = wanted.is_none_or(|wanted| wanted.iter().any(|one| **one == **name));
            if wanted {
                load.round_trips = round_trips(cluster);
                if !load.is_empty() {
                    loads.push(load);
                }
            }
        }
        loads
    }
}

/// Returns the difference since the last report, or the totals if the cluster was rebuilt since then.
fn difference(cluster: &Cluster, now: &ClusterTotals, last: &ClusterTotals) -> ClusterLoad {
    let anew = now.succeeded < last.succeeded || now.failed < last.failed;
    let nothing = ClusterTotals::default();
    let last = if anew { &nothing } else { last };
    let (succeeded, failed) = (now.succeeded - last.succeeded, now.failed - last.failed);
    let took = |counts: &ClusterTotals| counts.times.as_ref().map_or(Duration::ZERO, Snapshot::sum);
    let opened = now.opened.saturating_sub(last.opened);
    // All connections to the endpoints of a cluster are of one kind, so nothing is counted for each request.
    let mutual_tls = match cluster.is_in_mesh() {
        true => MutualTls {
            requests: succeeded + failed,
            opened,
        },
        false => MutualTls::default(),
    };
    ClusterLoad {
        name: Arc::clone(cluster.name()),
        succeeded,
        failed,
        dropped: now.dropped.saturating_sub(last.dropped),
        in_flight: u64::from(cluster.guard().requests.active()),
        timed: succeeded + failed,
        seconds: took(now).saturating_sub(took(last)).as_secs_f64(),
        times: times(now, last),
        bytes: now.bytes.saturating_sub(last.bytes),
        opened,
        retries: now.retries.saturating_sub(last.retries),
        ejected: now.ejected,
        mutual_tls: Some(mutual_tls),
        round_trips: Vec::new(),
    }
}

/// Returns the response times since the last report as histogram ranges: those with any responses, and the range
/// below each of these, which marks its lower bound.
fn times(now: &ClusterTotals, last: &ClusterTotals) -> Vec<Range> {
    let Some(now) = &now.times else {
        return Vec::new();
    };
    let mut ranges: Vec<Range> = Vec::new();
    let mut below = None;
    for (bound, count) in now.since(last.times.as_ref()) {
        // Bounds are whole microseconds and far below 2^64.
        let most_micros = bound.map(|bound| bound.as_micros() as u64);
        let range = Range { most_micros, count };
        if count > 0 {
            ranges.extend(below.take());
            ranges.push(range);
        } else {
            below = Some(range);
        }
    }
    ranges
}

/// Returns the round-trip times of the endpoints that were connected to since the last report.
fn round_trips(cluster: &Cluster) -> Vec<RoundTrip> {
    let endpoints = cluster.endpoints();
    let measured = endpoints.targets().iter().filter_map(|target| {
        let (address, time) = (target.address.ip()?, target.take_round_trip()?);
        Some(RoundTrip { address, time })
    });
    measured.take(MAX_ROUND_TRIPS).collect()
}

/// Sends reports until it is dropped.
pub(super) async fn send_reports(
    connection: Connection,
    reporter: &RefCell<Reporter>,
) -> Infallible {
    if let Err(why) = serve_channel(&connection, reporter).await {
        tracing::debug!(%why, "load reporting ended; no further load reports on this connection");
    }
    std::future::pending().await
}

async fn serve_channel(
    connection: &Connection,
    reporter: &RefCell<Reporter>,
) -> Result<(), CallError> {
    let (reports, outgoing) = mpsc::unbounded_channel();
    // The server of this stream has no report yet.
    reporter.borrow_mut().had_load = true;
    // If the send fails, the stream has ended, and its reader reports that.
    let _ = reports.send(frame(&load::introduction(reporter.borrow().node.clone())));
    let outgoing = Body::source(Box::new(Outgoing(outgoing)));
    let mut body = connection.call(load::PATH, outgoing).await?;
    let mut deframer = Deframer::new(LONGEST);
    let mut wish: Option<Wish> = None;
    let mut next = Instant::now();
    loop {
        tokio::select! {
            part = body.frame() => {
                let Some(part) = part else { return Ok(()) };
                if let Ok(data) = part?.into_data() {
                    deframer.put(&data);
                }
                while let Some(message) = deframer.message()? {
                    let read = LoadStatsResponse::decode(message).ok().and_then(Wish::read);
                    if let Some(read) = read {
                        next = Instant::now() + read.interval;
                        wish = Some(read);
                    }
                }
            }
            () = tokio::time::sleep_until(next), if wish.is_some() => {
                if let Some(wish) = &wish {
                    if let Some(report) = reporter.borrow_mut().due(wish) {
                        let _ = reports.send(frame(&report.request()));
                    }
                    next += wish.interval;
                }
            }
        }
    }
}
