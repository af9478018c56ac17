//! A request on its way from a route to an endpoint: what all of its attempts have in common.

use std::sync::Arc;

use maglor_config::route::{Forward, HostRewrite};
use tokio::time::Instant;

use crate::http::connection::{RequestContext, Service};
use crate::protocol::fields::Known;
use crate::protocol::message::Request;
use crate::protocol::proxy_protocol::Addresses;
use crate::routing::route::Route;
use crate::upstream::{Cluster, Sender, Target};

/// A request on its way from a route to an endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Hop<'a> {
    pub(crate) service: &'a Service,
    pub(crate) route: &'a Route,
    pub(crate) forward: &'a Forward,
    pub(crate) context: &'a RequestContext,
    /// The protocol that the client may and wants to switch to.
    pub(crate) upgrade: Option<&'a [u8]>,
}

impl Hop<'_> {
    /// Names the endpoint in the request where the route wants that.
    pub(in crate::http) fn rewrite_host(&self, request: &mut Request, target: &Target) {
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

    /// Both ends of the client's connection, where they have addresses.
    pub(in crate::http) fn ends(&self) -> Option<Addresses> {
        self.service.ends
    }

    /// The way to an endpoint.
    pub(in crate::http) fn sender<'b>(
        &'b self,
        cluster: &'b Arc<Cluster>,
        target: &'b Arc<Target>,
        now: Instant,
    ) -> Sender<'b> {
        let Service { worker, pools, .. } = self.service;
        Sender {
            cluster,
            target,
            pools,
            shard: worker.shard(),
            now,
            ends: self.ends(),
            interim: self.context.interim.as_deref(),
            unlimited: false,
        }
    }
}
