//! Checks local-first routing when local replicas are removed: calls cross nodes, and none fails.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use maglor_testkit::app::Fault;
use serde_json::json;

use super::bookinfo::{self, NAMESPACE};
use super::counters::Counters;
use super::pods::{counts, set_fault};
use super::stage::{Pod, Stage};
use super::{FORGET, failed};
use crate::error::{Error, Result};
use crate::kubernetes::until;
use crate::place::load::Clients;

/// The service whose replicas are removed. It has two, on two nodes.
const SERVICE: &str = "details";
/// The duration of the check of each state.
const LOOK: Duration = Duration::from_secs(10);
/// An instance with fewer calls per second is regarded as left out.
const LEFT_OUT: f64 = 1.0;

/// The observations in one state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) state: &'static str,
    /// Calls of the service per second, and those that left their node.
    pub(super) calls: f64,
    pub(super) away: f64,
}

/// The observations of all states, and the requests from the first to the last state.
#[derive(Clone, Debug)]
pub(super) struct Degraded {
    pub(super) round: u32,
    pub(super) seen: Vec<Seen>,
    pub(super) requests: usize,
    pub(super) failed: usize,
}

/// Removes replicas and makes one fail, under load.
pub(super) fn run(stage: &Stage, clients: &Clients, round: u32) -> Result<Degraded> {
    // An instance that answers with 503 receives requests until it is ejected, and refused requests
    // are retried elsewhere.
    stage.apply(&json!({
        "apiVersion": "maglor.dev/v1alpha1",
        "kind": "TrafficPolicy",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE},
        "spec": {
            "targetRefs": [{"kind": "Service", "name": SERVICE}],
            "route": {"retry": {"attempts": 2, "retry_on": ["gateway-error", "connect-failure", "reset"]}},
        },
    }))?;
    let load = clients.go_on(&stage.cluster)?;
    let mut seen = vec![look(stage, "local replicas serve")?];
    scale(stage, 1)?;
    seen.push(look(stage, "one node has none any more")?);
    scale(stage, 2)?;
    // Until callers are configured with it.
    thread::sleep(FORGET);
    seen.push(look(stage, "it is back")?);
    let broken = address(&instances(stage)?)?;
    fail(
        stage,
        broken,
        Fault {
            status_share: 1.0,
            status: 503,
            ..Fault::default()
        },
    )?;
    until("the instance that fails is left out", || {
        Ok(arrivals(stage, broken)? < LEFT_OUT)
    })?;
    seen.push(look(stage, "one is ejected")?);
    fail(stage, broken, Fault::default())?;
    let samples = load.stop()?;
    let delete = ["delete", "trafficpolicy", SERVICE, "-n", NAMESPACE];
    stage.kubectl().run(&delete)?;
    Ok(Degraded {
        round,
        seen,
        requests: samples.len(),
        failed: failed(&samples),
    })
}

fn instances(stage: &Stage) -> Result<Vec<Pod>> {
    let pods = stage.pods()?.into_iter();
    Ok(pods.filter(|pod| pod.service == SERVICE).collect())
}

fn address(pods: &[Pod]) -> Result<Ipv4Addr> {
    let first = pods.first().map(|pod| pod.address);
    first.ok_or_else(|| Error::protocol(format!("{SERVICE} has no replica")))
}

fn scale(stage: &Stage, replicas: u32) -> Result<()> {
    let count = format!("--replicas={replicas}");
    let deployment = format!("deployment/{SERVICE}");
    let scale = ["scale", &deployment, "-n", NAMESPACE, &count];
    stage.kubectl().run(&scale)?;
    let service = bookinfo::SERVICES.iter().find(|one| one.name == SERVICE);
    let usual = service.map_or(0, |service| service.replicas);
    stage.settled_with(bookinfo::replicas() + replicas - usual)
}

fn look(stage: &Stage, state: &'static str) -> Result<Seen> {
    let pods: Vec<_> = instances(stage)?.iter().map(|pod| pod.address).collect();
    let before = Counters::look(&stage.cluster, pods.clone())?;
    thread::sleep(LOOK);
    let rates = Counters::look(&stage.cluster, pods)?.since(&before);
    let (calls, away) = (rates.calls, rates.away);
    eprintln!("  {state}: {away:.1} of {calls:.1} calls of {SERVICE} a second leave their node");
    Ok(Seen { state, calls, away })
}

fn fail(stage: &Stage, pod: Ipv4Addr, fault: Fault) -> Result<()> {
    let ordered = stage.cluster.in_network(move || set_fault(pod, &fault));
    ordered?
}

/// Returns the calls that an instance receives per second.
fn arrivals(stage: &Stage, pod: Ipv4Addr) -> Result<f64> {
    let counted = stage.cluster.in_network(move || {
        let before = counts(pod)?.arrived;
        thread::sleep(Duration::from_secs(1));
        Ok::<_, Error>(counts(pod)?.arrived.saturating_sub(before))
    });
    let arrived: u64 = counted??;
    Ok(arrived as f64)
}
