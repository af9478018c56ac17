//! Proxies that become workloads of the mesh by the real controller over a folder, and calls between them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, TIMEOUT, Upstream, eventually};

use super::fixture::{CART, DOMAIN, Fixture, WEB};
use super::process::put;

/// The proxy that was built together with this test.
pub(crate) fn binary() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let binary = own.parent().and_then(Path::parent)?.join("maglor-proxy");
    if !binary.exists() {
        println!("skipped: there is no maglor-proxy; cargo build -p maglor-proxy makes it");
        return None;
    }
    Some(binary)
}

/// Connections are short, so that calls meet certificates of now.
pub(crate) const MESH: &str = "
apiVersion: maglor.dev/v1alpha1
kind: MeshConfig
metadata: {name: default}
spec: {mtls: strict, trustDomain: mesh.example, cluster: {max_requests_per_connection: 5}}
";

/// A Service `cart` whose only endpoint is at this address, with a sidecar.
pub(crate) fn cart_at(address: SocketAddr) -> String {
    format!(
        "{MESH}---
apiVersion: v1
kind: Service
metadata: {{name: cart, namespace: shop}}
spec: {{clusterIP: 10.0.0.1, ports: [{{port: 80, name: http}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: cart-0, namespace: shop, annotations: {{maglor.dev/injected: 'true'}}}}
spec: {{serviceAccountName: cart}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: cart-1, namespace: shop, labels: {{kubernetes.io/service-name: cart}}}}
addressType: IPv4
ports: [{{name: http, port: {}}}]
endpoints: [{{addresses: [{}], targetRef: {{kind: Pod, name: cart-0, namespace: shop}}}}]
",
        address.port(),
        address.ip()
    )
}

/// The configuration by which a proxy of these tests becomes a workload of the mesh.
pub(crate) struct Member<'a> {
    pub(crate) account: &'a str,
    pub(crate) token: &'a Path,
    pub(crate) roots: &'a Path,
    pub(crate) cache: &'a Path,
    pub(crate) domain: &'a str,
    /// The address of the controller.
    pub(crate) controller: &'a str,
}

impl Member<'_> {
    /// The beginning of its configuration; the list of clusters can be continued.
    pub(crate) fn yaml(&self) -> String {
        let Self {
            account,
            domain,
            controller,
            ..
        } = self;
        format!(
            "admin: {{address: '127.0.0.1:0'}}
drain_timeout: 1s
identity: {{token_file: '{}', trust_bundle: '{}'}}
control_plane: {{cluster: control-plane, node: {{id: shop/{account}-0}}, cache_dir: '{}'}}
clusters:
- name: control-plane
  tls: {{mesh: {{identities: ['spiffe://{domain}/ns/maglor/sa/maglor-controller']}}}}
  endpoints: ['{controller}']
",
            self.token.display(),
            self.roots.display(),
            self.cache.display(),
        )
    }
}

fn member(fixture: &Fixture, account: &str, token: &Path) -> String {
    Member {
        account,
        token,
        roots: &fixture.path("trust.pem"),
        cache: &fixture.path(&format!("cache-{account}")),
        domain: DOMAIN,
        controller: &fixture.control_plane(),
    }
    .yaml()
}

/// A sidecar of `cart`, in front of an application.
pub(crate) fn cart(fixture: &Fixture, token: &Path, application: &Upstream) -> String {
    format!(
        "{}- {{name: application, endpoints: ['{}']}}
listeners:
- name: inbound
  address: 127.0.0.1:0
  tls: mesh
  http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: application}}]}}]}}
",
        member(fixture, "cart", token),
        application.address()
    )
}

/// A sidecar of `web`, which requests hosts on demand.
pub(crate) fn web(fixture: &Fixture, token: &Path) -> String {
    format!(
        "{}listeners:
- name: outbound
  address: 127.0.0.1:0
  http: {{discovery: {{namespace: shop, timeout: 10s}}, virtual_hosts: []}}
",
        member(fixture, "web", token)
    )
}

/// A controller over a folder, and two members: `web` calls `cart`.
pub(crate) struct Mesh {
    pub(crate) fixture: Fixture,
    binary: PathBuf,
    pub(crate) application: Upstream,
    pub(crate) cart: Proxy,
    pub(crate) web: Proxy,
    /// Of the proxies' environment.
    variables: Vec<(String, String)>,
}

impl Mesh {
    pub(crate) async fn start(ttl: &'static str) -> Option<Self> {
        Self::start_with(ttl, Vec::new(), Vec::new()).await
    }

    /// With these variables of the controller's environment, and of the proxies'.
    pub(crate) async fn start_with(
        ttl: &'static str,
        controller: Vec<(String, String)>,
        variables: Vec<(String, String)>,
    ) -> Option<Self> {
        Self::start_named(ttl, controller, variables, None).await
    }

    /// The same, where proxies find the controller by this name.
    pub(crate) async fn start_named(
        ttl: &'static str,
        controller: Vec<(String, String)>,
        variables: Vec<(String, String)>,
        name: Option<&'static str>,
    ) -> Option<Self> {
        let binary = binary()?;
        let mut fixture = Fixture::start_with(MESH, ttl, controller).await;
        fixture.name = name;
        put(&fixture.path("trust.pem"), &fixture.bundle().to_pem());
        put(&fixture.path("cart-token"), CART);
        put(&fixture.path("web-token"), WEB);
        let application = Upstream::start("cart");
        let config = cart(&fixture, &fixture.path("cart-token"), &application);
        let cart = proxy(&binary, config, &variables);
        fixture.put(&cart_at(cart.listener("inbound")));
        let config = web(&fixture, &fixture.path("web-token"));
        let web = proxy(&binary, config, &variables);
        Some(Self {
            fixture,
            binary,
            application,
            cart,
            web,
            variables,
        })
    }

    /// Ends `web` as a power cut would, and starts it again.
    pub(crate) fn restart_web(&mut self) {
        let config = web(&self.fixture, &self.fixture.path("web-token"));
        let again = proxy(&self.binary, config, &self.variables);
        std::mem::replace(&mut self.web, again).kill();
    }

    /// The same with `cart`, which is found at another address then.
    pub(crate) fn restart_cart(&mut self) {
        let config = cart(
            &self.fixture,
            &self.fixture.path("cart-token"),
            &self.application,
        );
        let again = proxy(&self.binary, config, &self.variables);
        self.fixture.put(&cart_at(again.listener("inbound")));
        std::mem::replace(&mut self.cart, again).kill();
    }

    /// The response to a call from `web` to `cart`.
    pub(crate) fn call(&self) -> u16 {
        let mut client = RawHttp1::connect(self.web.listener("outbound"));
        let response = client.request("GET / HTTP/1.1\r\nhost: cart\r\n\r\n");
        response.status
    }

    pub(crate) fn reaches(&self) {
        eventually(TIMEOUT, "web reaches cart", || self.call() == 200);
    }
}

pub(crate) fn proxy(binary: &Path, config: String, variables: &[(String, String)]) -> Proxy {
    let builder = ProxyBuilder::new(binary).config(config);
    let builder = variables
        .iter()
        .fold(builder, |builder, (name, value)| builder.env(name, value));
    builder.start()
}

pub(crate) fn ready(proxy: &Proxy) -> (u16, String) {
    let response = proxy.admin_get("/ready");
    (response.status, response.text().to_owned())
}

pub(crate) fn certified(proxy: &Proxy) -> f64 {
    proxy.metric("maglor_identity_requests_total", &["result=\"certified\""])
}

/// Clients that call without pause, over connections that they keep and that they do not keep.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    pub(crate) fn start(address: SocketAddr) -> Self {
        Self::with_pauses(address, Duration::ZERO)
    }

    /// Each client waits for this long between two calls.
    pub(crate) fn with_pauses(address: SocketAddr, pause: Duration) -> Self {
        let (stop, answered) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let thread = |keep: bool| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            std::thread::spawn(move || call_until(&stop, &answered, address, (keep, pause)))
        };
        let threads = [true, true, false].map(thread).into();
        Self {
            stop,
            answered,
            threads,
        }
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(SeqCst)
    }

    /// Ends it: how many were answered, and the error.
    pub(crate) fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, SeqCst);
        let failed = self
            .threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        (self.answered.load(SeqCst), failed.collect())
    }
}

fn call_until(
    stop: &AtomicBool,
    answered: &AtomicU64,
    address: SocketAddr,
    (keep, pause): (bool, Duration),
) -> Vec<String> {
    let mut failed = Vec::new();
    let mut client = RawHttp1::connect(address);
    while !stop.load(SeqCst) && failed.len() < 10 {
        std::thread::sleep(pause);
        if !keep {
            client = RawHttp1::connect(address);
        }
        let response = client.request("GET / HTTP/1.1\r\nhost: cart\r\n\r\n");
        match response.status {
            200 => drop(answered.fetch_add(1, SeqCst)),
            other => failed.push(format!("{other}: {}", response.text())),
        }
    }
    failed
}
