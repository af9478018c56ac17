//! The topology of a run: instances of an application, their sidecars, proxies in front of them.
//!
//! ```text
//! client ─► entrance ─► [Proxy-Service] ─► [inbound sidecar] ─► instance ─► outbound sidecar ─► …
//! ```
//!
//! The sidecar of an instance is one process with up to two listeners; an entrance is an outbound
//! sidecar whose application is the load generator.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use maglor_testkit::app::{Deployment, Placed, WorkModel};

use super::shape::{Central, Shape};
use crate::error::Result;
use crate::peer::{Credentials, Peer};
use crate::ports::{self, Block};

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// Before the first service.
    Entrance,
    /// Before the instances of a host.
    ProxyService,
    /// Beside an instance.
    Sidecar,
}

/// One proxy process.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) duty: Duty,
    /// The host that it is a proxy or sidecar of.
    pub(super) host: String,
    pub(super) admin: SocketAddr,
    pub(super) listeners: Vec<Listener>,
    /// The group of the process, whose connections to its own pod are not redirected.
    pub(super) group: Option<u32>,
}

impl Process {
    /// Returns the destinations of each listener's connections without parsing: the first endpoint
    /// of its first route.
    pub(super) fn first_destinations(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
        self.listeners.iter().filter_map(|listener| {
            let first = listener.routes.first()?.endpoints.first()?;
            Some((listener.address, *first))
        })
    }
}

/// A listening socket with its routes.
#[derive(Debug, Clone)]
pub(super) struct Listener {
    /// [`INBOUND`] or [`OUTBOUND`].
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    /// Where its callers connect, if the kernel redirects them to it.
    pub(super) service: Option<SocketAddr>,
    /// The routes by the `Host` of a request; `*` stands for any.
    pub(super) routes: Vec<Route>,
    /// Set before a server whose balancers use its true queue: all servers of its host, and the
    /// policy.
    pub(super) peers: Option<Route>,
}

/// The destination of requests for a host.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) host: String,
    pub(super) policy: String,
    pub(super) endpoints: Vec<SocketAddr>,
}

/// The addresses of all listeners.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) deployment: Deployment,
    pub(super) processes: Vec<Process>,
    /// The program of Proxy-Services, if it differs from the other proxies'.
    pub(super) central: Option<Peer>,
    /// The addresses for clients, each with an equal share of the load.
    pub(super) targets: Vec<SocketAddr>,
    /// The `Host` of clients' requests.
    pub(super) host: String,
    /// The control addresses of the application's processes.
    pub(super) controls: Vec<SocketAddr>,
    /// The certificates of all sidecars, if they use mutual TLS between each other.
    pub(super) credentials: Option<Arc<Credentials>>,
}

/// The names of listeners.
pub(super) const INBOUND: &str = "inbound";
pub(super) const OUTBOUND: &str = "outbound";

/// The policy for a single destination.
const NO_CHOICE: &str = "round-robin";

impl Plan {
    /// Assigns all addresses.
    pub(super) fn new(model: &WorkModel, shape: &Shape) -> Result<Self> {
        let mut plan = Self {
            deployment: Deployment::default(),
            processes: Vec::new(),
            central: shape.proxy_service.as_ref().and_then(|one| one.by.clone()),
            targets: Vec::new(),
            host: String::new(),
            controls: (0..shape.processes)
                .map(|_| ports::free())
                .collect::<Result<_>>()?,
            credentials: None,
        };
        // The addresses at which a host's instances are called: of their sidecars, or of
        // themselves.
        let mut doors = BTreeMap::<String, Vec<SocketAddr>>::new();
        for (host, replicas) in model.hosts() {
            for _ in 0..replicas {
                let door = plan.place(host, shape.inbound, shape.outbound && calls(model, host))?;
                doors.entry(host.to_owned()).or_default().push(door);
            }
        }
        plan.finish(model, shape, doors)
    }

    /// Places an instance and its sidecar; returns the address at which it is called.
    fn place(&mut self, host: &str, inbound: bool, outbound: bool) -> Result<SocketAddr> {
        let index = self.deployment.instances.len();
        let mut listen = ports::free()?;
        listen.set_ip(ports::address(Block::Instances, index));
        let mut door = listen;
        let mut listeners = Vec::new();
        if inbound {
            door = ports::free()?;
            listeners.push(Listener::inbound(door, vec![listen], NO_CHOICE));
        }
        let outbound = if outbound { Some(ports::free()?) } else { None };
        if let Some(address) = outbound {
            listeners.push(Listener {
                name: OUTBOUND,
                address,
                service: None,
                routes: Vec::new(),
                peers: None,
            });
        }
        if !listeners.is_empty() {
            self.add(Duty::Sidecar, host, listeners)?;
        }
        self.deployment.instances.push(Placed {
            host: host.to_owned(),
            listen,
            outbound,
            remote: false,
        });
        Ok(door)
    }

    fn add(&mut self, duty: Duty, host: &str, listeners: Vec<Listener>) -> Result<()> {
        self.processes.push(Process {
            duty,
            host: host.into(),
            admin: ports::free()?,
            listeners,
            group: None,
        });
        Ok(())
    }

    /// Configures inbound sidecars with the other servers of their host.
    fn introduce(&mut self, shape: &Shape, doors: &BTreeMap<String, Vec<SocketAddr>>) {
        for listener in self.processes.iter_mut().flat_map(|one| &mut one.listeners) {
            let own = doors
                .iter()
                .find(|(_, all)| all.contains(&listener.address));
            listener.peers = own.map(|(host, all)| Route {
                host: host.clone(),
                policy: shape.policy.clone(),
                endpoints: all.clone(),
            });
        }
    }

    /// Returns the configuration of one of the application's processes, without the instances of
    /// others.
    pub(super) fn part(&self, process: usize) -> Deployment {
        let mut part = self.deployment.clone();
        for (index, placed) in part.instances.iter_mut().enumerate() {
            placed.remote = index % self.controls.len().max(1) != process;
        }
        part
    }

    /// Adds the Proxy-Services before the instances of a host; returns their addresses.
    fn proxy_services(
        &mut self,
        central: &Central,
        host: &str,
        behind: &[SocketAddr],
    ) -> Result<Vec<SocketAddr>> {
        let mut door = Vec::new();
        for _ in 0..central.count {
            let address = ports::free()?;
            let listener = Listener::inbound(address, behind.to_vec(), &central.policy);
            self.add(Duty::ProxyService, host, vec![listener])?;
            door.push(address);
        }
        Ok(door)
    }

    /// Adds Proxy-Services, entrances, and the destinations of outbound listeners, after all
    /// instances are placed.
    fn finish(
        mut self,
        model: &WorkModel,
        shape: &Shape,
        mut doors: BTreeMap<String, Vec<SocketAddr>>,
    ) -> Result<Self> {
        if shape.collaborates {
            self.introduce(shape, &doors);
        }
        let central = shape.proxy_service.as_ref();
        for (host, door) in &mut doors {
            if let Some(central) = central.filter(|central| central.is_before(host)) {
                *door = self.proxy_services(central, host, door)?;
            }
        }
        let policy = |host: &str| match central {
            Some(central) if central.is_before(host) => NO_CHOICE,
            _ => &shape.policy,
        };
        let routes = |hosts: &dyn Fn(&str) -> bool| -> Vec<Route> {
            let wanted = doors.iter().filter(|(host, _)| hosts(host));
            let route = |(host, endpoints): (&String, &Vec<SocketAddr>)| Route {
                host: host.clone(),
                policy: policy(host).into(),
                endpoints: endpoints.clone(),
            };
            wanted.map(route).collect()
        };
        let placed = self.deployment.instances.iter();
        let callers: BTreeMap<_, _> = placed
            .filter_map(|placed| Some((placed.outbound?, placed.host.as_str())))
            .collect();
        for listener in self.processes.iter_mut().flat_map(|one| &mut one.listeners) {
            if let Some(caller) = callers.get(&listener.address) {
                listener.routes = routes(&|host| calls_host(model, caller, host));
            }
        }
        let entry = model.called(&shape.entry);
        let entry = entry.map_or_else(String::new, |(name, service)| service.host(name).into());
        self.targets = doors.get(&entry).cloned().unwrap_or_default();
        if shape.entrances > 0 {
            self.targets.clear();
            let routes = routes(&|host| host == entry);
            for _ in 0..shape.entrances {
                let address = ports::free()?;
                self.targets.push(address);
                let listener = Listener {
                    name: OUTBOUND,
                    address,
                    service: None,
                    routes: routes.clone(),
                    peers: None,
                };
                self.add(Duty::Entrance, &entry, vec![listener])?;
            }
        }
        self.host = entry;
        Ok(self)
    }
}

impl Listener {
    fn inbound(address: SocketAddr, endpoints: Vec<SocketAddr>, policy: &str) -> Self {
        Self {
            name: INBOUND,
            address,
            service: None,
            routes: vec![Route {
                host: "*".into(),
                policy: policy.into(),
                endpoints,
            }],
            peers: None,
        }
    }
}

/// Returns whether any service of `host` calls another one.
fn calls(model: &WorkModel, host: &str) -> bool {
    let mut own = model
        .services()
        .filter(|(name, service)| service.host(name) == host);
    own.any(|(_, service)| {
        service
            .external_services
            .iter()
            .any(|group| !group.services.is_empty())
    })
}

/// Returns whether any service of `caller` calls one of `callee`.
fn calls_host(model: &WorkModel, caller: &str, callee: &str) -> bool {
    let own = model
        .services()
        .filter(|(name, service)| service.host(name) == caller);
    let groups = own.flat_map(|(_, service)| &service.external_services);
    let mut called = groups.flat_map(|group| &group.services);
    called.any(|name| {
        let found = model.called(name);
        found.is_some_and(|(name, service)| service.host(name) == callee)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use maglor_testkit::app::Service;

    use super::*;

    fn model() -> WorkModel {
        let service = || Service::exponential(2, 0.01);
        WorkModel::new([
            ("front".to_owned(), service().calling(["back"])),
            ("back".to_owned(), service()),
            ("other".to_owned(), service()),
        ])
    }

    fn shape() -> Shape {
        Shape {
            entry: "front".into(),
            entrances: 3,
            policy: "random".into(),
            outbound: true,
            inbound: true,
            collaborates: false,
            proxy_service: None,
            processes: 1,
        }
    }

    #[test]
    fn sidecars_know_whom_their_instances_call() {
        let plan = Plan::new(&model(), &shape()).unwrap();
        let count = |duty| plan.processes.iter().filter(|one| one.duty == duty).count();
        assert_eq!((count(Duty::Sidecar), count(Duty::Entrance)), (6, 3));
        assert_eq!(plan.targets.len(), 3);
        let fronts = plan
            .deployment
            .instances
            .iter()
            .filter(|one| one.host == "front");
        for front in fronts {
            let listeners = plan.processes.iter().flat_map(|one| &one.listeners);
            let own = listeners.filter(|one| Some(one.address) == front.outbound);
            let routes: Vec<_> = own.flat_map(|one| &one.routes).collect();
            assert_eq!(routes.len(), 1);
            assert_eq!(routes[0].host, "back");
            // Their sidecars, not they themselves.
            let listen: BTreeSet<_> = plan.deployment.addresses()["back"]
                .iter()
                .copied()
                .collect();
            assert_eq!(routes[0].endpoints.len(), 2);
            assert!(routes[0].endpoints.iter().all(|one| !listen.contains(one)));
        }
    }

    #[test]
    fn only_proxy_services_choose_among_instances() {
        for count in [1, 2] {
            let central = Central {
                count: count as u32,
                ..Central::everywhere("lor(choices=2)")
            };
            let shape = Shape {
                inbound: false,
                proxy_service: Some(central),
                ..shape()
            };
            let plan = Plan::new(&model(), &shape).unwrap();
            for process in &plan.processes {
                for route in process.listeners.iter().flat_map(|one| &one.routes) {
                    let expected = match process.duty {
                        Duty::ProxyService => ("lor(choices=2)", 2),
                        Duty::Entrance | Duty::Sidecar => (NO_CHOICE, count),
                    };
                    assert_eq!((route.policy.as_str(), route.endpoints.len()), expected);
                }
            }
        }
    }

    #[test]
    fn a_proxy_service_may_be_before_one_host_only() {
        let central = Central {
            only: Some(vec!["back".into()]),
            ..Central::everywhere("lor(choices=2)")
        };
        let shape = Shape {
            proxy_service: Some(central),
            ..shape()
        };
        let plan = Plan::new(&model(), &shape).unwrap();
        let central = plan.processes.iter();
        let central: Vec<_> = central
            .filter(|one| one.duty == Duty::ProxyService)
            .collect();
        assert_eq!(central.len(), 1);
        assert_eq!(central[0].host, "back");
    }

    #[test]
    fn who_collaborates_knows_all_servers_of_its_host() {
        let shape = Shape {
            policy: "ledger(group=40)".into(),
            collaborates: true,
            ..shape()
        };
        let plan = Plan::new(&model(), &shape).unwrap();
        let listeners: Vec<_> = plan
            .processes
            .iter()
            .flat_map(|one| &one.listeners)
            .collect();
        for listener in listeners {
            let peers = listener.peers.as_ref();
            assert_eq!(peers.is_some(), listener.name == "inbound");
            assert!(peers.is_none_or(|all| all.endpoints.contains(&listener.address)));
            assert!(peers.is_none_or(|all| all.endpoints.len() == 2));
        }
    }

    #[test]
    fn each_instance_runs_in_one_of_the_processes() {
        let shape = Shape {
            processes: 4,
            ..shape()
        };
        let plan = Plan::new(&model(), &shape).unwrap();
        let parts: Vec<_> = (0..4).map(|process| plan.part(process)).collect();
        for index in 0..plan.deployment.instances.len() {
            let own = parts.iter().filter(|part| !part.instances[index].remote);
            assert_eq!(own.count(), 1);
        }
    }

    #[test]
    fn without_proxies_clients_call_instances() {
        let shape = Shape {
            entrances: 0,
            outbound: false,
            inbound: false,
            ..shape()
        };
        let plan = Plan::new(&model(), &shape).unwrap();
        assert!(plan.processes.is_empty());
        assert_eq!(plan.targets, plan.deployment.addresses()["front"]);
    }
}
