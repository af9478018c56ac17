//! A plan behind a redirection, for comparisons with linkerd2-proxy: instances have the address of a pod, callers connect
//! to services, and the kernel redirects both to the sidecars.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::plan::{Listener, OUTBOUND, Plan, Process};
use crate::error::Result;
use crate::linkerd::ServiceEndpoints;
use crate::redirection::{Redirection, Service};

/// The addresses that replace others.
#[derive(Debug, Default)]
struct Replaced {
    /// By the address of an instance, or of the listener before it: that of its pod.
    pods: BTreeMap<SocketAddr, SocketAddr>,
    /// By the address of an outbound listener: where its callers connect.
    services: BTreeMap<SocketAddr, SocketAddr>,
    /// The connections to redirect.
    from_to: Vec<(SocketAddr, SocketAddr)>,
}

/// Moves a plan behind a redirection: afterwards only listeners have addresses of 127.0.0.1.
pub(super) fn redirect(plan: &mut Plan, redirection: Redirection) -> Result<()> {
    let mut replaced = Replaced::default();
    for process in &mut plan.processes {
        let service = redirection.service()?;
        replaced.add(process, service);
        process.group = Some(service.group);
    }
    replaced.apply(plan);
    match replaced.from_to.is_empty() {
        true => Ok(()),
        false => redirection.redirect(&replaced.from_to),
    }
}

/// Returns the services that the callers of a plan connect to, each with one destination.
pub(super) fn services(plan: &Plan) -> Vec<ServiceEndpoints> {
    let processes = plan.processes.iter();
    processes
        .flat_map(|process| process.listeners.iter())
        .filter(|listener| listener.name == OUTBOUND)
        .filter_map(|listener| {
            Some(ServiceEndpoints {
                address: listener.service?,
                endpoints: listener.routes.first()?.endpoints.clone(),
            })
        })
        .collect()
}

impl Replaced {
    fn add(&mut self, process: &Process, service: Service) {
        for listener in &process.listeners {
            let own = listener.address;
            let (from, replaced) = match listener.name {
                OUTBOUND => {
                    let from = SocketAddr::new(service.address, own.port());
                    (from, &mut self.services)
                }
                _ => {
                    let Some(instance) = instance(listener) else {
                        continue;
                    };
                    let from = SocketAddr::new(service.pod, instance.port());
                    self.pods.insert(instance, from);
                    (from, &mut self.pods)
                }
            };
            replaced.insert(own, from);
            self.from_to.push((from, own));
        }
    }

    fn apply(&self, plan: &mut Plan) {
        let listeners = plan.processes.iter_mut().flat_map(|one| &mut one.listeners);
        for listener in listeners {
            listener.service = self.services.get(&listener.address).copied();
            let endpoints = listener
                .routes
                .iter_mut()
                .flat_map(|one| &mut one.endpoints);
            endpoints.for_each(|address| replace(address, &self.pods));
        }
        for placed in &mut plan.deployment.instances {
            replace(&mut placed.listen, &self.pods);
            placed
                .outbound
                .iter_mut()
                .for_each(|address| replace(address, &self.services));
        }
        for target in &mut plan.targets {
            replace(target, &self.services);
            replace(target, &self.pods);
        }
    }
}

/// Returns the instance behind an inbound listener.
fn instance(listener: &Listener) -> Option<SocketAddr> {
    listener.routes.first()?.endpoints.first().copied()
}

fn replace(address: &mut SocketAddr, by: &BTreeMap<SocketAddr, SocketAddr>) {
    if let Some(new) = by.get(address) {
        *address = *new;
    }
}

#[cfg(test)]
mod tests {
    use maglor_testkit::app::{Service as Emulated, WorkModel};

    use super::super::shape::Shape;
    use super::*;

    #[test]
    fn callers_connect_to_services_and_sidecars_to_pods() {
        let service = || Emulated::exponential(2, 0.01);
        let model = WorkModel::new([
            ("front".to_owned(), service().calling(["back"])),
            ("back".to_owned(), service()),
        ]);
        let shape = Shape {
            entry: "front".into(),
            entrances: 1,
            policy: "random".into(),
            outbound: true,
            inbound: true,
            collaborates: false,
            proxy_service: None,
            processes: 1,
        };
        let mut plan = Plan::new(&model, &shape).unwrap();
        let mut replaced = Replaced::default();
        for (index, process) in plan.processes.iter().enumerate() {
            let last = u8::try_from(index + 1).unwrap();
            let service = Service {
                address: [10, 89, 0, last].into(),
                pod: [10, 90, 0, last].into(),
                group: 1,
            };
            replaced.add(process, service);
        }
        replaced.apply(&mut plan);
        let is = |address: &SocketAddr, block: &str| address.to_string().starts_with(block);
        for placed in &plan.deployment.instances {
            assert!(is(&placed.listen, "10.90."), "{placed:?}");
            assert!(placed.outbound.iter().all(|one| is(one, "10.89.")));
        }
        assert!(plan.targets.iter().all(|one| is(one, "10.89.")));
        let listeners = plan.processes.iter().flat_map(|one| &one.listeners);
        for listener in listeners {
            assert!(listener.address.ip().is_loopback());
            let routes = listener.routes.iter();
            let mut endpoints = routes.flat_map(|one| &one.endpoints);
            assert!(endpoints.all(|one| is(one, "10.90.")));
            assert_eq!(listener.service.is_some(), listener.name == OUTBOUND);
        }
        let services = services(&plan);
        // Two callers and the entrance; instances of the same host are the endpoints of each.
        assert_eq!(services.len(), 3);
        assert!(services.iter().all(|one| one.endpoints.len() == 2));
        // As many rules as listeners.
        assert_eq!(replaced.from_to.len(), 7);
    }
}
