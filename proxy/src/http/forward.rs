//! Forwards a request to a cluster and processes the endpoint's response.

use std::pin::pin;

use http::{StatusCode, Version};
use maglor_config::UpstreamProtocol;
use maglor_config::route::Destination;

use super::accounting::Accounting;
use super::attempt::Attempts;
use super::client::assertion;
use super::connection::{Hop, Upgrade};
use super::hash_key::{self, HashKey};
use super::{headers, rewrite_path};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::message::{Message, Request, Response};
use crate::upstream::Cluster;

/// Forwards a request and prepares its response for the client.
pub(crate) fn forward<'a>(
    hop: &'a Hop<'a>,
    message: &'a mut Message,
    accounting: &mut Accounting,
) -> impl Future<Output = Result<Response, ProxyError>> {
    async move {
        let worker = &hop.service.worker;
        let HashKey {
            hash: sticky,
            set_cookie: sticky_cookie,
        } = hop.sticky_key(&message.request);
        let share = worker.with_rng(move |rng| hop.route.share(hop.forward, sticky, rng));
        let (share, cluster) = share.ok_or(ProxyError::NoHealthyUpstream)?;
        if let Destination::Answer(status) = &share.destination {
            return Err(ProxyError::NoBackend(*status));
        }
        let cluster = cluster.cloned().ok_or(ProxyError::NoHealthyUpstream)?;
        let request = &mut message.request;
        headers::apply(share.request_headers.as_deref(), &mut request.fields);
        let now = worker.time(hop.context.started);
        let cluster = cluster.toward(hop.service.original(), worker.shared(), now)?;
        if let Some(recording) = accounting.recording() {
            recording.forwarded();
        }
        let HashKey { hash, set_cookie } = hop.hash_key(&message.request);
        // Boxed: every waiting request would reserve the space.
        let cookies = match [sticky_cookie, set_cookie] {
            [None, None] => None,
            cookies => Some(Box::new(cookies)),
        };
        hop.prepare(&mut message.request, &cluster)?;

        let result = {
            let (time, progress) = accounting.attempts();
            let mut attempts = Attempts::new(hop, &cluster, hash, message, time.deadline());
            let run = pin!(attempts.run(progress));
            time.limit(run).await.and_then(|result| result)
        };
        // No further attempt sends it.
        drop(message.body.take());
        accounting.forwarded(&result);
        if let Err(error) = &result {
            cluster.count_overflow(error);
            let by_cluster =
                error.overflow_reason().is_some() || matches!(error, ProxyError::NoHealthyUpstream);
            if let Some(recording) = accounting.recording()
                && by_cluster
            {
                recording.rejected_by(cluster.state());
            }
        }
        let mut response = result?;
        finish(&mut response, cookies, hop.upgrade.is_some(), accounting);
        headers::apply(share.response_headers.as_deref(), &mut response.fields);
        Ok(response)
    }
}

/// Removes response fields that concern only the endpoint's connection.
fn finish(
    response: &mut Response,
    cookies: Option<Box<[Option<Box<str>>; 2]>>,
    upgrading: bool,
    accounting: &mut Accounting,
) {
    let fields = &mut response.fields;
    fields.remove(Known::XMaglorQueue);
    if upgrading && response.status == StatusCode::SWITCHING_PROTOCOLS {
        accounting.lift_deadline();
        let protocol = fields.get(Known::Upgrade).map(<[u8]>::to_vec);
        fields.remove_hop_by_hop();
        if let Some(protocol) = protocol {
            headers::set_upgrade(fields, &protocol);
        }
        return;
    }
    fields.remove_hop_by_hop();
    for cookie in cookies.into_iter().flat_map(|cookies| *cookies).flatten() {
        fields.push(Known::SetCookie, cookie.as_bytes());
    }
}

impl Hop<'_> {
    /// Returns the hash that assigns the client to one of the route's clusters.
    fn sticky_key(&self, request: &Request) -> HashKey {
        let Some(kind) = &self.forward.sticky else {
            return HashKey::default();
        };
        let client = &self.service.client;
        let worker = &self.service.worker;
        worker.with_rng(|rng| hash_key::of_kind(kind, request, client, rng))
    }

    fn hash_key(&self, request: &Request) -> HashKey {
        if self.forward.hash_policy.is_empty() {
            return HashKey::default();
        }
        let policy = &self.forward.hash_policy;
        let client = &self.service.client;
        let worker = &self.service.worker;
        worker.with_rng(|rng| hash_key::hash_key(policy, request, client, rng))
    }

    /// Prepares the client's request for the next hop.
    fn prepare(&self, request: &mut Request, cluster: &Cluster) -> Result<(), ProxyError> {
        let in_mesh = cluster.is_in_mesh();
        // A client's statements about queues and about other clients must not be forwarded.
        request.fields.remove(Known::XMaglorQueue);
        request.fields.remove(Known::XMaglorClient);
        if in_mesh && self.service.settings().says_client {
            assertion::set(&mut request.fields, &self.service.client);
        }
        let original_version = self.service.original_version(request);
        request.fields.remove(Known::XMaglorHttpVersion);
        headers::keep_only_te_trailers(&mut request.fields);
        if let Some(Upgrade(protocol)) = self.upgrade.as_deref() {
            headers::set_upgrade(&mut request.fields, protocol);
        }
        if request.version == Version::HTTP_2 {
            headers::join_cookies(&mut request.fields);
            let follows = cluster.config().protocol == UpstreamProtocol::Downstream;
            let guess = follows && self.service.is_edge() && !request.is_grpc();
            request.version = match original_version {
                Some(original_version) => original_version,
                None if guess => Version::HTTP_11,
                None => Version::HTTP_2,
            };
        }
        rewrite_path::path(request, self.forward, self.route)
    }
}
