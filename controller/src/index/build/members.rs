//! The serving endpoints of a Service, from its slices and pods.
//!
//! What a pod says of itself counts more than what a slice says of it: Kubernetes writes the slices from the
//! pods, one after another, and is seconds behind where many change.

use std::collections::BTreeMap;

use maglor_config::raw::MeshMode;

use crate::index::Index;
use crate::index::facts::{Key, Service, Serving, Slice, SliceEndpoint, Workload};

/// An endpoint that serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    /// Of the slice, of the pod, and of the Service.
    pub(crate) namespace: &'a str,
    pub(crate) slice: &'a Slice,
    pub(crate) endpoint: &'a SliceEndpoint,
    /// `None` where it is no pod.
    pub(crate) pod: Option<&'a Workload>,
    /// It ends: what it has may finish, nothing new goes there.
    pub(crate) draining: bool,
}

/// The endpoints of a Service that serve, by all addresses.
///
/// A pod that is not known is left out. Slices and pods come by watches of their own, either of which may be
/// behind: taken for a pod without a sidecar, one that has just come would put the whole Service into plain
/// text, and the address of a removed one may belong to another pod by now. So may an address that a pod has lost, as
/// when its node has started anew.
pub(crate) fn of<'a>(index: &'a Index, key: &Key) -> impl Iterator<Item = Member<'a>> + use<'a> {
    let service = index.services.get(key);
    let slices = index.links.slices_of_service(key);
    let slices = slices.filter_map(|name| index.slices.get_key_value(name));
    slices.flat_map(move |(key, slice)| {
        let endpoints = slice.endpoints.iter();
        endpoints.filter_map(move |endpoint| member(index, service?, key, slice, endpoint))
    })
}

fn member<'a>(
    index: &'a Index,
    service: &Service,
    key: &'a Key,
    slice: &'a Slice,
    endpoint: &'a SliceEndpoint,
) -> Option<Member<'a>> {
    let pod = match &endpoint.pod {
        None => None,
        Some(name) => Some(index.workloads.get(&Key::new(&key.namespace, name))?),
    };
    if let Some(pod) = pod
        && (is_another(endpoint, pod) || slice.of_pods && !pod.may_have(endpoint.address))
    {
        return None;
    }
    if index.is_foreign(key, slice, endpoint, pod) {
        return None;
    }
    let said = pod.filter(|_| slice.of_pods && service.of_ready_pods);
    let serving = said.and_then(|pod| pod.serving).unwrap_or(endpoint.serving);
    Some(Member {
        namespace: &key.namespace,
        slice,
        endpoint,
        pod,
        draining: match serving {
            Serving::Yes => false,
            Serving::Draining => true,
            Serving::No => return None,
        },
    })
}

/// Whether the pod of an endpoint has gone, or is not known yet, and this is another one of its name.
pub(super) fn is_another(endpoint: &SliceEndpoint, pod: &Workload) -> bool {
    let both = endpoint.uid.as_ref().zip(pod.uid.as_ref());
    both.is_some_and(|(one, other)| one != other)
}

impl Member<'_> {
    /// Whether it is a pod with these labels.
    pub(crate) fn has_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.pod.is_some_and(|pod| {
            let there = |(name, value): (&String, &String)| pod.labels.get(name) == Some(value);
            labels.iter().all(there)
        })
    }

    /// Whether a sidecar takes what is sent to a port, and so mutual TLS.
    pub(crate) fn is_secured(&self, port: u16) -> bool {
        self.pod.is_some_and(|pod| pod.takes(port))
    }

    /// Whether a port takes nothing but mutual TLS.
    pub(crate) fn is_strict(&self, index: &Index, port: u16) -> bool {
        let pod = self.pod.filter(|_| self.is_secured(port));
        let named = pod.zip(self.endpoint.pod.as_deref());
        named.is_some_and(|(pod, name)| {
            let key = Key::new(self.namespace, name);
            let of_port = index.port_modes(&key, pod).get(&port).copied();
            of_port.unwrap_or_else(|| index.mtls(&key, pod)) == MeshMode::Strict
        })
    }

    /// Who it proves to be at a port; `None`: no sidecar takes what is sent there.
    pub(crate) fn identity(&self, index: &Index, port: u16) -> Option<String> {
        let pod = self.pod.filter(|_| self.is_secured(port))?;
        Some(index.identity(self.namespace, &pod.service_account))
    }
}
