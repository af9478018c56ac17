//! What is sent of requests' bodies, counted for their cluster.
//!
//! A body whose length is known counts when it is sent, as a whole and for nothing more; only one that
//! nobody knows the end of is watched on its way.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::HeaderMap;
use http_body::Body as _;

use crate::protocol::error::ProxyError;
use crate::protocol::message::{Account, Body};
use crate::upstream::Cluster;

/// The body of a try, whose bytes count for the cluster.
pub(in crate::http) fn counted(body: Body, cluster: &Arc<Cluster>, shard: usize) -> Body {
    match body.size_hint().exact() {
        Some(0) => body,
        Some(length) => {
            cluster.metrics().sent(shard, length);
            body
        }
        None => {
            let cluster = Arc::clone(cluster);
            body.with_account(Box::new(Watched { cluster, shard }))
        }
    }
}

#[derive(Debug)]
struct Watched {
    cluster: Arc<Cluster>,
    shard: usize,
}

impl Account for Watched {
    fn count(&mut self, bytes: u64) {
        self.cluster.metrics().sent(self.shard, bytes);
    }

    fn sent(&mut self, _: u64) {}

    fn trailers(&mut self, _: &HeaderMap) {}

    fn received(&mut self) {}

    fn complete(&mut self) {}

    fn fail(&mut self, _: &ProxyError) {}

    fn poll_timeout(&mut self, _: &mut Context<'_>) -> Poll<ProxyError> {
        // The request's own record minds the time.
        Poll::Pending
    }
}
