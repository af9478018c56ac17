//! Combines slices and pods into the serving endpoints of a Service.
//!
//! The state of a pod takes precedence over that in a slice: Kubernetes derives the slices from the pods one after
//! another, which takes seconds when many pods change.

use std::collections::BTreeMap;

use maglor_config::raw::MeshMode;

use crate::index::Index;
use crate::index::facts::{Key, Service, Serving, Slice, SliceEndpoint, Workload};

/// An endpoint that serves requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    /// The namespace of the slice, of the pod, and of the Service.
    pub(crate) namespace: &'a str,
    pub(crate) slice: &'a Slice,
    pub(crate) endpoint: &'a SliceEndpoint,
    /// The endpoint's pod; `None` if the endpoint is not a pod.
    pub(crate) pod: Option<&'a Workload>,
    /// Whether the endpoint is terminating: its requests may finish, but it gets no new ones.
    pub(crate) draining: bool,
}

/// Returns the serving endpoints of a Service, with all addresses.
///
/// An endpoint whose pod is unknown is omitted. Slices and pods are watched separately, and either watch may be
/// behind the other. If a new pod counted as one without a sidecar, the whole Service would be called in plain text,
/// and the address of a removed pod may already belong to another one. The latter also applies to an address that a
/// pod has lost, for example because its node was restarted.
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
    let authoritative = pod.filter(|_| slice.of_pods && service.of_ready_pods);
    let serving = authoritative
        .and_then(|pod| pod.serving)
        .unwrap_or(endpoint.serving);
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

/// Returns whether the endpoint's pod is gone or not known yet, so that `pod` is a different one of the same name.
pub(super) fn is_another(endpoint: &SliceEndpoint, pod: &Workload) -> bool {
    let both = endpoint.uid.as_ref().zip(pod.uid.as_ref());
    both.is_some_and(|(one, other)| one != other)
}

impl Member<'_> {
    /// Returns whether the endpoint is a pod with these labels.
    pub(crate) fn has_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.pod.is_some_and(|pod| {
            let there = |(name, value): (&String, &String)| pod.labels.get(name) == Some(value);
            labels.iter().all(there)
        })
    }

    /// Returns whether a sidecar handles connections to a port, and therefore supports mutual TLS.
    pub(crate) fn is_secured(&self, port: u16) -> bool {
        self.pod.is_some_and(|pod| pod.takes(port))
    }

    /// Returns whether a port accepts only mutual TLS.
    pub(crate) fn is_strict(&self, index: &Index, port: u16) -> bool {
        let pod = self.pod.filter(|_| self.is_secured(port));
        let named = pod.zip(self.endpoint.pod.as_deref());
        named.is_some_and(|(pod, name)| {
            let key = Key::new(self.namespace, name);
            let of_port = index.port_modes(&key, pod).get(&port).copied();
            of_port.unwrap_or_else(|| index.mtls(&key, pod)) == MeshMode::Strict
        })
    }

    /// Returns the identity of the endpoint at a port; `None` if no sidecar handles connections to the port.
    pub(crate) fn identity(&self, index: &Index, port: u16) -> Option<String> {
        let pod = self.pod.filter(|_| self.is_secured(port))?;
        Some(index.identity(self.namespace, &pod.service_account))
    }
}
