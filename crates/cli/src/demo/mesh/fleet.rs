//! All processes of the demo: the ingress, and for each replica an application and its sidecar.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use maglor_balance::PolicySpec;
use maglor_telemetry::scrape::Meter;
use tempfile::TempDir;

use super::Error;
use super::application::Application;
use super::configuration::{Mesh, Ports, service_name};
use super::control_plane::ControlPlane;
use super::fault::{Fault, Kind};
use super::flow::Flows;
use super::manifests;
use super::members::{Members, NAMESPACE};
use super::plan::Plan;
use super::process::Program;
use super::services::{INGRESS, Replica, SERVICES};
use super::sidecar::Sidecar;
use crate::demo::client::Client;

/// The time within which a proxy has the settings of its control plane.
const READY_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The seed of the replicas' random times.
const SEED: u64 = 0x6d61_676c_6f72;

/// A proxy, with the state that survives its restarts.
#[derive(Debug)]
pub(super) struct Proxy {
    name: String,
    service: Option<usize>,
    folder: PathBuf,
    configuration: String,
    admin: Client,
    meter: Meter,
    /// The process; absent while it is killed.
    running: Option<Sidecar>,
    /// The largest observed memory, in bytes: its proportional share (PSS), since the proxies share their program's
    /// pages.
    pub(super) memory: f64,
}

/// A replica's application and proxy.
#[derive(Debug)]
struct Pod {
    replica: Replica,
    ports: Ports,
    application: Rc<Application>,
    proxy: Proxy,
}

/// All processes; they end when this is dropped, and leave nothing.
#[derive(Debug)]
pub(super) struct Fleet {
    program: Program,
    /// Whether proxies send spans.
    pub(super) is_traced: bool,
    /// The address for clients of the application.
    pub(super) ingress: SocketAddr,
    front: Proxy,
    pods: Vec<Pod>,
    control_plane: Option<ControlPlane>,
    /// Dropped last: it contains the proxies' files.
    folder: TempDir,
}

/// Returns a loopback address for each replica, as each pod has one. Addresses of concurrent demos
/// differ, and none of them is the source address of connections: that is 127.0.0.1.
fn own_address(place: u8) -> Ipv4Addr {
    let process = std::process::id();
    let [.., high, low] = process.to_be_bytes();
    Ipv4Addr::new(127, 64 | high & 63, low, place)
}

/// Returns free ports of an address; they are held until all are chosen, so that they differ.
pub(super) fn free<const N: usize>(address: Ipv4Addr) -> io::Result<[SocketAddr; N]> {
    let mut held = Vec::with_capacity(N);
    let mut found = [SocketAddr::from((address, 0)); N];
    for place in &mut found {
        let socket = TcpListener::bind((address, 0))?;
        *place = socket.local_addr()?;
        held.push(socket);
    }
    Ok(found)
}

fn ports(address: Ipv4Addr) -> io::Result<Ports> {
    let [admin, application, inbound, outbound] = free(address)?;
    Ok(Ports {
        admin,
        application,
        inbound,
        outbound,
    })
}

impl Fleet {
    /// Starts everything and waits until it accepts requests.
    pub(super) async fn start(
        program: PathBuf,
        controller: Option<&Path>,
        plan: &Plan,
        policy: &PolicySpec,
        collector: Option<&str>,
    ) -> Result<Self, Error> {
        let folder = tempfile::Builder::new().prefix("maglor-demo-").tempdir();
        let folder = folder.map_err(Error::system("make a temporary folder"))?;
        let program = Program::new(program, folder.path());
        let members = Members::new()?;
        let chosen = Error::system("choose ports");
        let places: io::Result<Vec<_>> = plan
            .replicas()
            .zip(2..)
            .map(|(replica, place)| Ok((replica, ports(own_address(place))?)))
            .collect();
        let places = places.map_err(chosen)?;
        let [admin, ingress] = free(own_address(1)).map_err(Error::system("choose ports"))?;
        let mut endpoints = vec![Vec::new(); SERVICES.len()];
        for (replica, ports) in &places {
            endpoints[replica.service].push(ports.inbound);
        }
        let admins = places
            .iter()
            .map(|(replica, ports)| (replica.to_string(), ports.admin));
        let admins: Vec<_> = admins
            .chain([(INGRESS.to_owned(), admin)])
            .map(|(name, admin)| (format!("{NAMESPACE}/{name}"), admin))
            .collect();
        let control_plane = match controller {
            None => None,
            Some(controller) => {
                let resources = manifests::mesh(policy, plan.replicas());
                let place = folder.path().join("control-plane");
                let program = program.with_path(controller);
                let inbound = places
                    .iter()
                    .map(|(replica, ports)| (*replica, ports.inbound));
                let inbound: Vec<_> = inbound.collect();
                let resources = (&*resources, &*inbound);
                Some(ControlPlane::start(&program, &place, resources, &admins).await?)
            }
        };
        let mesh = Mesh {
            control_plane: control_plane.as_ref().map(|one| one.address),
            policy,
            endpoints: &endpoints,
            collector,
        };
        let named = |name: String, service, admin, configuration: String| {
            Proxy::new(&folder, &members, name, service, admin, configuration)
        };
        let front = mesh.ingress(admin, ingress);
        let front = named(INGRESS.into(), None, admin, front)?;
        let mut pods = Vec::new();
        for (replica, ports) in places {
            let configuration = mesh.sidecar(replica, &ports);
            let service = Some(replica.service);
            let proxy = named(replica.to_string(), service, ports.admin, configuration)?;
            pods.push(Pod {
                replica,
                ports,
                application: Application::new(replica, ports.outbound, SEED),
                proxy,
            });
        }
        let mut fleet = Self {
            program,
            is_traced: collector.is_some(),
            ingress,
            front,
            pods,
            control_plane,
            folder,
        };
        fleet.start_all().await?;
        Ok(fleet)
    }

    /// Starts all processes concurrently; they do not need each other to become ready.
    async fn start_all(&mut self) -> Result<(), Error> {
        for pod in &mut self.pods {
            pod.start_application().await?;
            pod.proxy.start(&self.program)?;
        }
        self.front.start(&self.program)?;
        for proxy in self.proxies_mut() {
            proxy.ready().await?;
        }
        Ok(())
    }

    /// Returns the address of the page; `None` if there is no control plane.
    pub(super) fn page(&self) -> Option<SocketAddr> {
        self.control_plane.as_ref().map(|one| one.page)
    }

    fn proxies_mut(&mut self) -> impl Iterator<Item = &mut Proxy> {
        let pods = self.pods.iter_mut().map(|pod| &mut pod.proxy);
        std::iter::once(&mut self.front).chain(pods)
    }

    /// Returns all proxies, the ingress first.
    pub(super) fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        std::iter::once(&self.front).chain(self.pods.iter().map(|pod| &pod.proxy))
    }

    fn pod(&mut self, replica: Replica) -> Option<&mut Pod> {
        self.pods.iter_mut().find(|pod| pod.replica == replica)
    }

    /// Returns the ports of a replica's proxy; `None` if there is no such replica.
    pub(super) fn ports(&self, replica: Replica) -> Option<Ports> {
        let mut pods = self.pods.iter();
        pods.find(|pod| pod.replica == replica).map(|pod| pod.ports)
    }

    /// Returns a folder for one more proxy, and the program.
    pub(super) fn room(&self, name: &str) -> Result<(PathBuf, Program), Error> {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder).map_err(Error::system("make a folder"))?;
        Ok((folder, self.program.clone()))
    }

    /// Starts a fault. The counts until now are added to `flows`.
    pub(super) async fn apply(&mut self, fault: Fault, flows: &mut Flows) -> Result<(), Error> {
        let program = self.program.clone();
        let control_plane = self.control_plane.take();
        let applied = self.apply_to_pod(fault, flows, (&program, control_plane.as_ref()));
        let applied = applied.await;
        self.control_plane = control_plane;
        applied
    }

    async fn apply_to_pod(
        &mut self,
        fault: Fault,
        flows: &mut Flows,
        (program, control_plane): (&Program, Option<&ControlPlane>),
    ) -> Result<(), Error> {
        let Some(pod) = self.pod(fault.replica) else {
            return Ok(()); // never: faults are checked where they are read
        };
        match fault.kind {
            Kind::Errors => pod.application.failing.set(true),
            Kind::Heal => {
                pod.application.failing.set(false);
                pod.application.slow.set(false);
                if pod.proxy.running.is_none() {
                    pod.start_application().await?;
                    pod.proxy.start(program)?;
                    pod.proxy.ready().await?;
                    if let Some(control_plane) = control_plane {
                        control_plane.add(pod.replica, pod.ports.inbound)?;
                    }
                }
            }
            Kind::Kill => {
                pod.proxy.look(flows).await;
                pod.proxy.running = None;
                pod.application.stop().await;
                if let Some(control_plane) = control_plane {
                    control_plane.remove(pod.replica)?;
                }
            }
            Kind::Slow => pod.application.slow.set(true),
        }
        Ok(())
    }

    /// Adds all counts since the last scrape.
    pub(super) async fn look(&mut self, flows: &mut Flows) {
        for proxy in self.proxies_mut() {
            proxy.look(flows).await;
        }
        for pod in &self.pods {
            let (arrived, proved) = pod.application.take_arrivals();
            flows.add_arrivals(SERVICES[pod.replica.service].name, arrived, proved);
        }
    }

    /// Restarts proxies that have terminated unexpectedly, as Kubernetes would; returns their
    /// names.
    pub(super) async fn revive(&mut self) -> Result<Vec<String>, Error> {
        let program = self.program.clone();
        let mut notes = Vec::new();
        for proxy in self.proxies_mut() {
            let Some(running) = &mut proxy.running else {
                continue;
            };
            if let Some(status) = running.ended()? {
                proxy.start(&program)?;
                proxy.ready().await?;
                let name = &proxy.name;
                notes.push(format!(
                    "the proxy of {name} exited ({status}) and was restarted"
                ));
            }
        }
        Ok(notes)
    }
}

impl Pod {
    async fn start_application(&self) -> Result<(), Error> {
        let started = self.application.start(self.ports.application).await;
        started.map_err(Error::system("start an application"))
    }
}

impl Proxy {
    /// Creates a member with a folder and a certificate, not yet started.
    fn new(
        folder: &TempDir,
        members: &Members,
        name: String,
        service: Option<usize>,
        admin: SocketAddr,
        configuration: String,
    ) -> Result<Self, Error> {
        let folder = folder.path().join(&name);
        fs::create_dir(&folder).map_err(Error::system("make a folder"))?;
        members.issue(service_name(service), &folder)?;
        maglor_config::parse(&configuration, &name)?;
        Ok(Self {
            name,
            service,
            folder,
            configuration,
            admin: Client::new(admin, INGRESS),
            meter: Meter::default(),
            running: None,
            memory: 0.0,
        })
    }

    fn start(&mut self, program: &Program) -> Result<(), Error> {
        self.meter.restart();
        let name = self.name.clone();
        let started = Sidecar::start(program, name, &self.folder, &self.configuration)?;
        self.running = Some(started);
        Ok(())
    }

    /// Waits until it accepts requests, with the settings of its control plane.
    async fn ready(&mut self) -> Result<(), Error> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        running.ready().await?;
        let started = Instant::now();
        while self.admin.get("/ready").await.is_err() {
            if started.elapsed() > READY_WITHIN {
                return Err(Error::NotReady(self.name.clone(), READY_WITHIN));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Scrapes its metrics; if it does not respond, nothing is added.
    async fn look(&mut self, flows: &mut Flows) {
        if self.running.is_none() {
            return;
        }
        let Ok(page) = self.admin.get("/metrics").await else {
            return;
        };
        let Ok(page) = std::str::from_utf8(&page) else {
            return;
        };
        let samples = self.meter.grown(page);
        if let Some(bytes) = self.running.as_ref().and_then(Sidecar::memory) {
            self.memory = self.memory.max(bytes);
        }
        flows.add(service_name(self.service), &samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_have_addresses_and_ports_of_their_own() {
        assert_ne!(own_address(1), own_address(2));
        assert!(own_address(1).is_loopback() && own_address(1) != Ipv4Addr::LOCALHOST);
        let ports: [_; 4] = free(Ipv4Addr::LOCALHOST).unwrap();
        let mut numbers = ports.map(|address| address.port());
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
