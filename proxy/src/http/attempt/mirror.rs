//! Sends copies of requests to other clusters. Their responses are discarded, and no request waits for them.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body::Body as _;
use maglor_balance::guard::Percent;
use tokio::time::Instant;

use super::accounting::Attempt;
use super::replay::Replay;
use crate::http::connection::Hop;
use crate::http::deadline::Deadline;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::message::{Body, Message, Request};
use crate::protocol::proxy_protocol::Addresses;
use crate::runtime::worker::Worker;
use crate::upstream::{Cluster, ClusterSlot, Pools, Sender};

/// Time limit of a copy whose request has no timeout.
const PATIENCE: Duration = Duration::from_secs(15);

/// Selects the clusters that receive a copy of a request.
pub(super) fn chosen<'a>(hop: &Hop<'a>, request: &Request) -> Vec<&'a Arc<Cluster>> {
    let mirrors = &hop.route.mirrors;
    if mirrors.is_empty() || request.method == Method::CONNECT || hop.upgrade.is_some() {
        return Vec::new();
    }
    let worker = &hop.service.worker;
    let hit = |(_, percent): &&(_, Percent)| worker.with_rng(|rng| percent.hits(rng));
    mirrors
        .iter()
        .filter(hit)
        .map(|(cluster, _)| cluster)
        .collect()
}

/// Sends copies of a request.
pub(super) fn send(
    hop: &Hop<'_>,
    clusters: &[&Arc<Cluster>],
    request: &Request,
    body: Option<&Replay>,
    deadline: &Deadline,
) {
    let now = hop.context.started;
    for cluster in clusters {
        let mut request = request.clone();
        if let Some(record) = &hop.record {
            record.inject(None, &mut request.fields);
        }
        let copy = Copy {
            worker: Rc::clone(&hop.service.worker),
            pools: Rc::clone(&hop.service.upstreams.pools),
            cluster: Arc::clone(cluster),
            message: Message {
                request,
                body: body.map_or_else(Body::empty, Replay::follow),
            },
            ends: hop.ends(cluster),
            hurried: deadline.is_hurried(),
        };
        let deadline = match deadline.at(now) {
            Some(_) => deadline.clone(),
            None => deadline.restarted(PATIENCE, now),
        };
        tokio::task::spawn_local(async move {
            let sent = deadline.wait(copy.send(now)).await;
            if let Err(error) = sent.unwrap_or(Err(ProxyError::RequestTimeout)) {
                tracing::debug!(%error, "mirrored request failed");
            }
        });
    }
}

/// One copy of a request.
struct Copy {
    worker: Rc<Worker>,
    pools: Rc<Pools>,
    cluster: Arc<Cluster>,
    message: Message,
    ends: Option<Box<Addresses>>,
    hurried: bool,
}

impl Copy {
    async fn send(mut self, now: Instant) -> Result<(), ProxyError> {
        let time = self.worker.time(now);
        let _slot = ClusterSlot::enter(&self.cluster, time).await?;
        let picked = self
            .worker
            .with_rng(|rng| self.cluster.pick(time, None, &[], rng))?;
        let mut attempt = Attempt::new(&self.worker, &self.cluster, picked, 1, now, None);
        if self.hurried {
            attempt.hurry();
        }
        let target = Arc::clone(attempt.target());
        let fields = &mut self.message.request.fields;
        if !fields.contains(Known::Host) {
            fields.set(Known::Host, target.authority().as_bytes());
        }
        let sender = Sender {
            cluster: &self.cluster,
            target: &target,
            pools: &self.pools,
            now,
            ends: self.ends,
            interim: None,
            noted: None,
        };
        let result = sender.send(&mut self.message).await;
        let response = result.inspect_err(|error| attempt.failed(error))?;
        attempt.answered(&response, self.message.request.is_grpc());
        let (mut body, mut bytes) = (response.body, 0);
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let frame = frame.inspect_err(|error| attempt.failed(error))?;
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        attempt.complete(Instant::now(), bytes);
        Ok(())
    }
}
