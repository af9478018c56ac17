//! Two members of a mesh, their servers, and disturbances of them.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use maglor_balance::Rng;
use maglor_testkit::{Proxy, ProxyBuilder, Upstream, eventually};

use super::clients::Addresses;
use super::held::{Held, answered};
use super::relay::{self, Target};
use crate::support::mesh::{Member, Root};
use crate::support::reload;

/// Time within which everything ends by a timeout.
const SETTLES: Duration = Duration::from_secs(20);
/// Allowed growth of the heap over a run, in bytes: pools of timers and buffers, tables that have grown.
const GROWTH: f64 = 1.5 * 1024.0 * 1024.0;

const WORKERS: u32 = 2;
/// Number of tasks of a worker without connections: three of its own, and one that accepts.
const TASKS: u32 = 4;

/// The settings that a reload changes.
#[derive(Clone, Copy, Debug)]
struct Variant {
    max_requests: u32,
    max_pending: u32,
    per_endpoint: u32,
    max_connections: u32,
    timeout: u32,
    idle: u32,
    extra: bool,
}

const USUAL: Variant = Variant {
    max_requests: 5,
    max_pending: 20,
    per_endpoint: 3,
    max_connections: 100,
    timeout: 1500,
    idle: 1000,
    extra: false,
};

impl Variant {
    fn draw(rng: &mut Rng) -> Self {
        let mut one_of = |all: &[u32]| all[rng.below(all.len() as u32) as usize];
        Self {
            max_requests: one_of(&[1, 5, 50]),
            max_pending: one_of(&[0, 5, 100]),
            per_endpoint: one_of(&[1, 3, 50]),
            max_connections: one_of(&[2, 10, 100]),
            timeout: one_of(&[300, 1500]),
            idle: one_of(&[1000, 1100]),
            extra: one_of(&[0, 1]) == 1,
        }
    }
}

/// Returns the parts of a configuration that both proxies have; `clusters` are lines of their settings by name.
fn routes(variant: &Variant, clusters: &[&str]) -> String {
    let timeout = variant.timeout;
    let mut all = Vec::new();
    for cluster in clusters {
        let copy = "mirror: [{cluster: copies}]";
        for (policy, settings) in [
            ("plain", String::new()),
            ("retry", "retry: {retry_on: [5xx, reset, connect-failure], attempts: 3, non_idempotent: true, per_try_timeout: 100ms}".to_owned()),
            ("hedge", "hedge: 30ms, retry: {retry_on: 5xx}".to_owned()),
            ("mirror", copy.to_owned()),
        ] {
            let comma = if settings.is_empty() { "" } else { ", " };
            all.push(format!(
                "{{match: {{path: {{prefix: /{cluster}/{policy}}}}}, cluster: {cluster}, timeout: {timeout}ms{comma}{settings}}}"
            ));
        }
        all.push(format!(
            "{{match: {{path: {{prefix: /{cluster}/queue}}}}, cluster: {cluster}-queue, timeout: {timeout}ms}}"
        ));
    }
    all.join(", ")
}

fn cluster(variant: &Variant, name: &str, endpoint: SocketAddr, settings: &str) -> String {
    let Variant {
        max_requests,
        max_pending,
        per_endpoint,
        max_connections,
        ..
    } = variant;
    let common = format!(
        "endpoints: ['{endpoint}'], idle_timeout: 500ms, connect_timeout: 1s, outlier_ejection: {{max_ejection_percent: 0}}{settings}"
    );
    let limits = format!(
        "limits: {{max_requests: {max_requests}, max_pending_requests: {max_pending}, max_connections: {max_connections}, \
         queue_timeout: 300ms, endpoint: {{max_requests: {per_endpoint}}}}}"
    );
    format!("- {{name: {name}, {common}}}\n- {{name: {name}-queue, {common}, {limits}}}\n")
}

/// Addresses of the parts of the mesh.
struct Places {
    server: SocketAddr,
    copies: SocketAddr,
    inbound: SocketAddr,
    extra: SocketAddr,
}

fn listener(name: &str, address: &str, settings: &str, variant: &Variant, routes: &str) -> String {
    let idle = variant.idle;
    format!(
        "- name: {name}\n  address: {address}\n{settings}  http: {{idle_timeout: {idle}ms, header_timeout: 1s, \
         stream_idle_timeout: 1s, virtual_hosts: [{{domains: ['*'], routes: [{routes}]}}]}}\n"
    )
}

fn top(member: &Member) -> String {
    format!(
        "workers: {WORKERS}\nadmin: {{address: '127.0.0.1:0'}}\ndrain_timeout: 5s\n{}\nlisteners:\n",
        member.yaml()
    )
}

fn outbound(member: &Member, places: &Places, variant: &Variant) -> String {
    let names = ["h1", "h2", "mesh2", "mesh"];
    let routes = routes(variant, &names);
    let mut text = top(member);
    text += &listener("web", "127.0.0.1:0", "", variant, &routes);
    if variant.extra {
        text += &listener("extra", &places.extra.to_string(), "", variant, &routes);
    }
    text += "clusters:\n";
    text += &cluster(variant, "h1", places.server, "");
    text += &cluster(variant, "h2", places.server, ", protocol: http2");
    text += &cluster(variant, "mesh", places.inbound, ", tls: mesh");
    text += &cluster(
        variant,
        "mesh2",
        places.inbound,
        ", tls: mesh, protocol: http2",
    );
    text += &cluster(variant, "copies", places.copies, "");
    text
}

fn inbound(member: &Member, places: &Places) -> String {
    let routes = routes(&USUAL, &["h1", "h2"]);
    let rest = format!(
        "{routes}, {{match: {{path: {{prefix: /mesh2}}}}, cluster: h2, timeout: 1s}}, {{cluster: h1, timeout: 1s}}"
    );
    let mut text = top(member);
    text += &listener("web", "127.0.0.1:0", "  tls: mesh\n", &USUAL, &rest);
    text += "clusters:\n";
    text += &cluster(&USUAL, "h1", places.server, "");
    text += &cluster(&USUAL, "h2", places.server, ", protocol: http2");
    text += &cluster(&USUAL, "copies", places.copies, "");
    text
}

fn start(config: &str) -> Proxy {
    let binary = std::env::var_os("MAGLOR_PROXY").map(PathBuf::from);
    let binary = binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_maglor-proxy").into());
    ProxyBuilder::new(binary).config(config).start()
}

/// A proxy, and the resources that it held at first.
struct Observed {
    proxy: Proxy,
    before: Held,
    /// Size of the heap after the first schedules, which fill pools.
    heap: Option<f64>,
    last: Held,
}

impl Observed {
    fn new(proxy: Proxy) -> Self {
        // Workers count their tasks each second, the first time before they listen.
        let listening = |held: &Held| held.tasks >= f64::from(WORKERS * TASKS) && held.heap > 0.0;
        eventually(SETTLES, "workers have counted their tasks", || {
            listening(&Held::by(&proxy))
        });
        let before = Held::by(&proxy);
        Self {
            proxy,
            before,
            heap: None,
            last: before,
        }
    }

    fn settle(&mut self, name: &str) -> Result<(), String> {
        let deadline = Instant::now() + SETTLES;
        loop {
            let held = Held::by(&self.proxy);
            let grown = self.heap.is_some_and(|heap| held.heap > heap + GROWTH);
            if held.is_back(&self.before) && !grown {
                self.heap.get_or_insert(held.heap);
                self.last = held;
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "{name} holds {held:?}, before {:?}, heap {:?}",
                    self.before, self.heap
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// See the module's documentation.
pub(crate) struct Mesh {
    _root: Root,
    server: Member,
    client: Member,
    places: Places,
    _servers: [Upstream; 2],
    inbound: Observed,
    outbound: Observed,
    relayed: Target,
    reloads: usize,
    drains: usize,
}

impl Mesh {
    pub(crate) fn start() -> Self {
        let root = Root::new();
        let servers = ["server", "copies"].map(Upstream::start);
        let fixed = |address| Arc::new(Mutex::new(address));
        let server = relay::start(fixed(servers[0].address()), 1);
        let copies = relay::start(fixed(servers[1].address()), 2);
        // Free when it is needed, unless another process uses it.
        let extra = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let relayed = fixed(server);
        let places = Places {
            server,
            copies,
            inbound: relay::start(Arc::clone(&relayed), 3),
            extra,
        };
        let (server, client) = (root.member("server"), root.member("client"));
        let inbound = start(&inbound(&server, &places));
        *relayed.lock().unwrap() = inbound.listener("web");
        let outbound = start(&outbound(&client, &places, &USUAL));
        Self {
            _root: root,
            server,
            client,
            places,
            _servers: servers,
            inbound: Observed::new(inbound),
            outbound: Observed::new(outbound),
            relayed,
            reloads: 0,
            drains: 0,
        }
    }

    pub(crate) fn addresses(&self) -> Addresses {
        Addresses {
            outbound: self.outbound.proxy.listener("web"),
            extra: self.places.extra,
            inbound: self.inbound.proxy.listener("web"),
            member: self.client.client("maglor/1"),
            member_http2: self.client.client("h2"),
        }
    }

    /// Reloads some times, and periodically drains the inbound proxy, while clients are connected.
    pub(crate) fn disturb(&mut self, rng: &mut Rng) {
        for _ in 0..rng.below(4) {
            std::thread::sleep(Duration::from_millis(u64::from(rng.below(400))));
            self.reload(&Variant::draw(rng));
        }
        if rng.below(10) == 0 {
            self.replace_inbound();
        }
        self.reload(&USUAL);
    }

    fn reload(&mut self, variant: &Variant) {
        let text = outbound(&self.client, &self.places, variant);
        let file = std::fs::read_to_string(self.outbound.proxy.config_file()).unwrap();
        if file != text {
            reload(&self.outbound.proxy, &text);
            self.reloads += 1;
        }
    }

    fn replace_inbound(&mut self) {
        let new = start(&inbound(&self.server, &self.places));
        *self.relayed.lock().unwrap() = new.listener("web");
        let old = std::mem::replace(&mut self.inbound, Observed::new(new));
        assert!(old.proxy.terminate().success());
        self.drains += 1;
    }

    /// Waits until both proxies hold the same resources as at first; returns the differences if they do not.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        self.outbound.settle("the outbound proxy")?;
        self.inbound.settle("the inbound proxy")
    }

    pub(crate) fn summary(&self) -> String {
        let heap = |one: &Observed| (one.before.heap / 1024.0, one.last.heap / 1024.0);
        let (from, to) = heap(&self.outbound);
        let (inbound_from, inbound_to) = heap(&self.inbound);
        format!(
            "{} reloads, {} drains; outbound {}; heap from {from:.0} to {to:.0} KiB outbound, from {inbound_from:.0} to {inbound_to:.0} KiB inbound",
            self.reloads,
            self.drains,
            answered(&self.outbound.proxy),
        )
    }

    pub(crate) fn end(self) {
        assert!(self.outbound.proxy.terminate().success());
        assert!(self.inbound.proxy.terminate().success());
    }
}
