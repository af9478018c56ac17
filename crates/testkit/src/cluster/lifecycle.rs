//! A cluster: starts all of its parts in order, and stops them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::cluster::addresses;
use crate::cluster::control::{self, Server};
use crate::cluster::credentials::{Certificates, User};
use crate::cluster::delay::{self, DelayLines};
use crate::cluster::error::{At as _, ClusterError};
use crate::cluster::image::Image;
use crate::cluster::kubectl::Kubectl;
use crate::cluster::machine::Machine;
use crate::cluster::network;
use crate::cluster::node;
use crate::cluster::options::Options;
use crate::cluster::process::Process;
use crate::cluster::programs::{self, KWOK};
use crate::cluster::relay::{self, Relay};
use crate::cluster::scale;
use crate::cluster::state::{Folder, MachineState, State};
use crate::cluster::wait::until;

/// The image of the DNS server.
const COREDNS: &str = "maglor.dev/coredns:1";

/// The time limit for nodes to become ready, and for the DNS server to respond.
const READY: Duration = Duration::from_secs(180);

/// A running Kubernetes cluster, which is stopped when the value is dropped.
#[derive(Debug)]
pub struct Cluster {
    options: Options,
    programs: PathBuf,
    /// The folder of kwok's program; `None` if no nodes are simulated.
    kwok: Option<PathBuf>,
    kubectl: Kubectl,
    folder: Folder,
    relay: Option<Relay>,
    delay: Option<DelayLines>,
    control: Option<Machine>,
    nodes: Vec<Machine>,
    processes: Vec<Process>,
}

impl Cluster {
    /// Builds or installs everything that a cluster needs; [`Cluster::start`] does this first. Returns the folder with
    /// the programs of Kubernetes.
    ///
    /// # Errors
    ///
    /// The process does not run as root, or a part is missing that cannot be installed or built here.
    pub fn prepare(say: fn(&str)) -> Result<PathBuf, ClusterError> {
        if !rustix::process::geteuid().is_root() {
            return Err(ClusterError::Missing {
                what: "root permission".into(),
                hint: "a cluster needs namespaces, mounts and control groups".into(),
            });
        }
        programs::want_system_programs(say)?;
        programs::kubernetes(say)
    }

    /// Returns whether a cluster can be started here. It is like [`Cluster::prepare`], but reports a missing part as a
    /// message, so that a test that needs a cluster can skip itself.
    ///
    /// # Errors
    ///
    /// Nothing is missing, but the preparation fails.
    pub fn is_possible(say: fn(&str)) -> Result<bool, ClusterError> {
        match Self::prepare(say) {
            Ok(_) => Ok(true),
            Err(missing @ ClusterError::Missing { .. }) => {
                say(&format!("skipped: {missing}"));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Starts a cluster, and waits until its nodes are ready and its DNS server responds.
    ///
    /// This takes a minute if the programs are in the cache, and a quarter of an hour if they have to be built.
    ///
    /// # Errors
    ///
    /// The process does not run as root, a part is missing, or a program does not start. Nothing is left running then.
    pub fn start(options: Options) -> Result<Self, ClusterError> {
        options.check()?;
        let programs = Self::prepare(options.say)?;
        let kwok = (options.simulated_nodes > 0).then(|| KWOK.ready(options.say));
        let kwok = kwok.transpose()?;
        let folder = Folder::take(&options.name)?;
        let kubeconfig = folder.path().join("kubeconfig");
        let kubectl = Kubectl::new(programs.join("kubectl"), kubeconfig);
        let mut cluster = Self {
            options,
            programs,
            kwok,
            kubectl,
            folder,
            relay: None,
            delay: None,
            control: None,
            nodes: Vec::new(),
            processes: Vec::new(),
        };
        // An early return stops everything started so far.
        cluster.bring_up()?;
        Ok(cluster)
    }

    /// Returns the `kubectl` of the cluster.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Returns the path of the administrator's kubeconfig, which is valid on the host and on the control plane's
    /// machine.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        self.kubectl.kubeconfig()
    }

    /// Returns the machines of the nodes that run containers.
    #[must_use]
    pub fn nodes(&self) -> &[Machine] {
        &self.nodes
    }

    /// Returns a command that runs a program of the host in the network of the control plane, from which all pods can
    /// be reached.
    ///
    /// # Errors
    ///
    /// The control plane has not started.
    pub fn network_command(&self, program: &str) -> Result<Command, ClusterError> {
        Ok(self.control()?.network_command(program))
    }

    /// Runs a closure on a thread in the network of the control plane.
    ///
    /// # Errors
    ///
    /// The network cannot be entered, or the thread panicked.
    pub fn in_network<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ClusterError> {
        let network = self.control()?.network();
        joined(relay::in_network(&network, work)?)
    }

    /// Changes the one-way delay of packets between nodes. The cluster must have been started with a delay.
    ///
    /// # Errors
    ///
    /// The cluster has no delay, or the new one is too long.
    pub fn set_delay(&self, delay: Duration) -> Result<(), ClusterError> {
        let refused = |reason: &str| ClusterError::Invalid {
            field: "delay",
            reason: reason.into(),
        };
        if delay > delay::MOST {
            return Err(refused("must be at most 5 s"));
        }
        let lines = self.delay.as_ref();
        let lines = lines.ok_or_else(|| refused("the cluster was started without a delay"))?;
        lines.set(delay);
        Ok(())
    }

    /// Loads an image into every node.
    ///
    /// # Errors
    ///
    /// The files of the image cannot be read, or a node rejects it.
    pub fn load(&self, image: &Image) -> Result<(), ClusterError> {
        let inits = self.nodes.iter().map(Machine::init);
        load(self.folder.path(), inits, image)
    }

    /// Loads the images of an archive, as `docker save` writes it, into every node.
    ///
    /// # Errors
    ///
    /// A node rejects the archive.
    pub fn load_archive(&self, archive: &Path) -> Result<(), ClusterError> {
        let mut inits = self.nodes.iter().map(Machine::init);
        inits.try_for_each(|init| node::import(init, archive))
    }

    /// Stops the cluster and removes all of its files.
    ///
    /// # Errors
    ///
    /// A part of the cluster could not be removed.
    pub fn stop(mut self) -> Result<(), ClusterError> {
        self.end();
        self.folder.remove()
    }

    fn bring_up(&mut self) -> Result<(), ClusterError> {
        let say = self.options.say;
        let certificates = Certificates::new()?;
        let people = People::new(self.options.nodes)?;
        let listener = Relay::bind()?;
        let port = listener.local_addr().at(self.folder.path())?.port();
        let server = Server {
            port,
            authority: certificates.authority.clone(),
        };

        say("starting etcd and the API server");
        let control = Machine::start("control", &self.folder.path().join("control"))?;
        network::wire_control(&control)?;
        self.processes =
            control::start_api(&control, &self.programs, &certificates, &people.all(), port)?;
        self.write_kubeconfig(&certificates, &people.admin, port)?;
        self.relay = Some(Relay::start(listener, &control.network())?);
        let log = control.file("kube-apiserver.log");
        let control = self.control.insert(control);

        // The API server starts slowly; the nodes are started meanwhile.
        start_nodes(
            &self.options,
            self.folder.path(),
            control,
            &mut self.nodes,
            &mut self.processes,
        )?;
        if !self.options.delay.is_zero() {
            self.delay = Some(DelayLines::start(&self.nodes, self.options.delay)?);
        }
        for (node, index) in self.nodes.iter().zip(1..) {
            let delayed = self.delay.is_some();
            network::route_to_others(node, index, self.options.nodes, delayed)?;
        }
        for (name, program) in [(node::PAUSE, "pause"), (COREDNS, "coredns")] {
            let image = Image::of_program(name, &self.programs.join(program));
            self.load(&image)?;
        }
        let hint = format!("see {}", log.display());
        control::wait_for_api(&self.kubectl, &mut self.processes, &hint)?;

        say("starting controllers, scheduler and nodes");
        self.start_rest(&server, &people)?;
        self.kubectl
            .apply(include_str!("../../cluster/manifests/coredns.yaml"))?;
        self.wait_until_ready()?;
        self.folder.publish(&self.state())
    }

    fn start_rest(&mut self, server: &Server, people: &People) -> Result<(), ClusterError> {
        let control = self.control.as_ref().ok_or_else(not_started)?;
        let started = control::start_controllers(
            control,
            &self.programs,
            server,
            (&people.controllers, &people.scheduler),
            self.kwok.is_some(),
        )?;
        self.processes.extend(started);
        let nodes = self.nodes.iter().zip(&people.nodes);
        for ((machine, user), index) in nodes.zip(1..) {
            let started = node::start_kubelet(
                machine,
                index,
                &self.options.name,
                &self.programs,
                server,
                (user, &people.proxy),
            )?;
            self.processes.extend(started);
        }
        if let Some(kwok) = &self.kwok {
            let process = control::start_kwok(control, kwok, server, &people.admin)?;
            self.processes.push(process);
            self.kubectl
                .apply(&scale::nodes(self.options.simulated_nodes))?;
        }
        Ok(())
    }

    fn wait_until_ready(&mut self) -> Result<(), ClusterError> {
        let (kubectl, processes) = (&self.kubectl, &mut self.processes);
        let hint = format!("see the logs below {}", self.folder.path().display());
        let expected = usize::from(self.options.nodes) + usize::from(self.options.simulated_nodes);
        let what = format!("{expected} nodes are ready");
        until(READY, &what, &hint, || {
            for process in processes.iter_mut() {
                process.check()?;
            }
            let nodes = kubectl.nodes()?;
            let ready = nodes.iter().filter(|(_, ready)| *ready).count();
            Ok((ready == expected).then_some(()))
        })?;
        (self.options.say)("nodes are ready; waiting for DNS");
        let limit = format!("--timeout={}s", READY.as_secs());
        let names = ["deployment/coredns", "--namespace=kube-system"];
        kubectl.run(&[&["rollout", "status", &limit], &names[..]].concat())?;
        Ok(())
    }

    fn write_kubeconfig(
        &self,
        certificates: &Certificates,
        admin: &User,
        port: u16,
    ) -> Result<(), ClusterError> {
        let authority = self.folder.path().join("authority.pem");
        fs::write(&authority, &certificates.authority).at(&authority)?;
        let server = format!("https://127.0.0.1:{port}");
        let text = admin.kubeconfig(&server, &authority.to_string_lossy());
        let path = self.kubectl.kubeconfig();
        fs::write(path, text).at(path)
    }

    fn state(&self) -> State {
        let machine = |machine: &Machine, address: std::net::Ipv4Addr| MachineState {
            name: machine.name().to_owned(),
            address: address.to_string(),
            init: machine.init(),
        };
        let control = self.control.iter();
        let control = control.map(|control| machine(control, addresses::CONTROL));
        let nodes = self.nodes.iter().zip(1..);
        let nodes = nodes.map(|(node, index)| machine(node, addresses::node(index)));
        State {
            kubeconfig: self.kubeconfig().to_owned(),
            kubectl: self.programs.join("kubectl"),
            machines: control.chain(nodes).collect(),
            delay_micros: delay::micros(self.options.delay),
        }
    }

    pub(crate) fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }

    fn control(&self) -> Result<&Machine, ClusterError> {
        self.control.as_ref().ok_or_else(not_started)
    }

    /// Ends all processes, threads and machines of the cluster.
    fn end(&mut self) {
        self.relay = None;
        self.delay = None;
        self.nodes.clear();
        self.control = None;
        self.processes.clear();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end();
        // Remains are removed by the next cluster of this name.
        let _ = self.folder.remove();
    }
}

/// Returns the result of a thread in another network namespace.
pub(crate) fn joined<T>(thread: JoinHandle<Option<T>>) -> Result<T, ClusterError> {
    let result = thread.join();
    result.ok().flatten().ok_or_else(|| ClusterError::Ended {
        program: "a thread in the cluster's network".into(),
        status: "a panic".into(),
        detail: "see the panic message above".into(),
    })
}

/// All users of the API server that have a token.
struct People {
    admin: User,
    controllers: User,
    scheduler: User,
    proxy: User,
    nodes: Vec<User>,
}

impl People {
    fn new(nodes: u8) -> Result<Self, ClusterError> {
        let nodes = (1..=nodes).map(|index| User::node(&node_name(index)));
        Ok(Self {
            admin: User::admin()?,
            controllers: User::component("kube-controller-manager")?,
            scheduler: User::component("kube-scheduler")?,
            proxy: User::component("kube-proxy")?,
            nodes: nodes.collect::<Result<_, _>>()?,
        })
    }

    fn all(&self) -> Vec<User> {
        let parts = [&self.admin, &self.controllers, &self.scheduler, &self.proxy];
        parts.into_iter().chain(&self.nodes).cloned().collect()
    }
}

/// Starts the machines of the nodes concurrently, each with containerd.
fn start_nodes(
    options: &Options,
    folder: &Path,
    control: &Machine,
    nodes: &mut Vec<Machine>,
    processes: &mut Vec<Process>,
) -> Result<(), ClusterError> {
    let start = |index: u8| {
        let name = node_name(index);
        let machine = Machine::start(&name, &folder.join(&name))?;
        network::wire_node(control, &machine, index)?;
        let containerd = node::start_containerd(&machine, index)?;
        Ok((machine, containerd))
    };
    let started: Vec<Result<_, ClusterError>> = thread::scope(|scope| {
        let threads = (1..=options.nodes).map(|index| scope.spawn(move || start(index)));
        let threads: Vec<_> = threads.collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    for result in started {
        let (machine, containerd) = result?;
        nodes.push(machine);
        processes.push(containerd);
    }
    Ok(())
}

/// Loads an image into machines, which are identified by their first processes. The archive of the image is created in
/// `folder`, and removed afterwards.
pub(crate) fn load(
    folder: &Path,
    inits: impl IntoIterator<Item = u32>,
    image: &Image,
) -> Result<(), ClusterError> {
    let archive = folder.join(format!("image-{}.tar", std::process::id()));
    let import = || {
        image.write(&archive)?;
        inits
            .into_iter()
            .try_for_each(|init| node::import(init, &archive))
    };
    let result = import();
    let _ = fs::remove_file(&archive);
    result
}

fn node_name(index: u8) -> String {
    format!("node-{index}")
}

fn not_started() -> ClusterError {
    ClusterError::NotUp {
        name: "its control plane".into(),
    }
}
