//! Detects addresses that a slice must not contain: those of pods and Services in other namespaces, and of the API
//! server.
//!
//! A writer of EndpointSlices in a namespace determines where requests to its Services are sent. Without a
//! restriction, a slice could direct them, with the address and identity of a Gateway or of callers' proxies, to
//! targets to which its writer may not refer, bypassing the NetworkPolicies there (CVE-2021-25740). Therefore an
//! endpoint is ignored if its address is known to belong to another namespace or to the API server. Addresses outside
//! the cluster are used as written. To send requests to a Service of another namespace, name it in a route.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Index;
use super::facts::{Key, Slice, SliceEndpoint, Workload};

/// Namespace and name of the API server's Service.
const API_SERVER: (&str, &str) = ("default", "kubernetes");

/// The owners of addresses, and the slices that contain them.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// Addresses of pods and Services, each with its owner.
    held: BTreeSet<(IpAddr, Key)>,
    /// Addresses in slices, each with its slice.
    named: BTreeSet<(IpAddr, Key)>,
}

/// Returns the entries of an address in either notation (IPv4, IPv4-mapped).
fn of(all: &BTreeSet<(IpAddr, Key)>, address: IpAddr) -> impl Iterator<Item = &Key> {
    let address = address.to_canonical();
    let from = (address, Key::new("", ""));
    let here = all
        .range(from..)
        .take_while(move |(one, _)| *one == address);
    here.map(|(_, key)| key)
}

impl Index {
    /// Returns whether the writer of a slice may not use the address of an endpoint. `pod` is the pod that the
    /// endpoint names.
    pub(super) fn is_foreign(
        &self,
        key: &Key,
        slice: &Slice,
        endpoint: &SliceEndpoint,
        pod: Option<&Workload>,
    ) -> bool {
        let address = endpoint.address;
        if pod.is_some_and(|pod| pod.addresses.contains(&address)) {
            return false;
        }
        self.is_held_elsewhere(&key.namespace, address) || self.is_api_server(key, slice, address)
    }

    fn is_held_elsewhere(&self, namespace: &str, address: IpAddr) -> bool {
        let (mut own, mut others) = (false, false);
        for holder in of(&self.addresses.held, address) {
            own |= holder.namespace == namespace;
            others |= holder.namespace != namespace;
        }
        others && !own
    }

    /// Returns whether an address and a port of the slice are those of the API server. All programs on a node share
    /// its address, so the ports are compared, too.
    fn is_api_server(&self, key: &Key, slice: &Slice, address: IpAddr) -> bool {
        let (namespace, name) = API_SERVER;
        if key.namespace == namespace {
            return false;
        }
        let service = Key::new(namespace, name);
        let slices = self.links.slices_of_service(&service);
        let mut slices = slices.filter_map(|key| self.slices.get(key));
        slices.any(|own| {
            let ports = || own.ports.iter().map(|(_, port)| port);
            let mut endpoints = own.endpoints.iter();
            endpoints.any(|one| one.address.to_canonical() == address.to_canonical())
                && slice
                    .ports
                    .iter()
                    .any(|(_, port)| ports().any(|own| own == port))
        })
    }

    /// Returns the addresses of a pod; empty if the pod is in the host network.
    pub(super) fn addresses_of_pod(&self, key: &Key) -> Vec<IpAddr> {
        let pod = self.workloads.get(key).filter(|pod| !pod.host_network);
        pod.map(|pod| pod.addresses.to_vec()).unwrap_or_default()
    }

    /// Records changed addresses of a pod or Service, and invalidates slices that contain these addresses.
    pub(super) fn note_addresses(&mut self, key: &Key, before: &[IpAddr], now: &[IpAddr]) {
        for address in before.iter().filter(|one| !now.contains(one)) {
            let held = (address.to_canonical(), key.clone());
            self.addresses.held.remove(&held);
            self.invalidate_named(*address);
        }
        for address in now.iter().filter(|one| !before.contains(one)) {
            let held = (address.to_canonical(), key.clone());
            self.addresses.held.insert(held);
            self.invalidate_named(*address);
        }
    }

    /// Records that a slice exists or was deleted.
    pub(super) fn note_slice(&mut self, key: &Key, slice: &Slice, is_there: bool) {
        for endpoint in &slice.endpoints {
            let named = (endpoint.address.to_canonical(), key.clone());
            match is_there {
                true => drop(self.addresses.named.insert(named)),
                false => drop(self.addresses.named.remove(&named)),
            }
        }
        let (namespace, name) = API_SERVER;
        let of_api_server = |service: &Key| service.namespace == namespace && service.name == name;
        if slice.service.as_ref().is_some_and(of_api_server) {
            for endpoint in &slice.endpoints {
                self.invalidate_named(endpoint.address);
            }
        }
    }

    fn invalidate_named(&mut self, address: IpAddr) {
        let slices = of(&self.addresses.named, address).filter_map(|key| self.slices.get(key));
        let services: Vec<Key> = slices.filter_map(|slice| slice.service.clone()).collect();
        for service in services {
            self.invalidate_members(&service);
        }
    }
}
