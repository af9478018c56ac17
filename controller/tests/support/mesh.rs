//! A mesh without Kubernetes: the real controller with a folder of resources, and a real proxy for each
//! application, which the controller certifies by a token.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use maglor_identity::{Authority, TrustDomain};
use maglor_testkit::{Load, Proxy, ProxyBuilder, RawHttp1, TIMEOUT, Upstream, wait};
use serde_json::Value;
use tempfile::TempDir;

const NAMESPACE: &str = "shop";
/// The accounts that workloads may run with.
const ACCOUNTS: [&str; 10] = [
    "admin",
    "bank",
    "cart",
    "details",
    "low-proxy-group",
    "productpage",
    "ratings",
    "reviews",
    "web",
    "web-maglor",
];

/// The folder of the controller's resources, and the authority of the members.
pub(crate) struct Mesh {
    dir: TempDir,
    binary: PathBuf,
    /// Additional arguments of the controller.
    arguments: Vec<String>,
    controller: Option<Child>,
    listen: SocketAddr,
    admin: SocketAddr,
    /// Address of the dashboard; `None` without `--dashboard`.
    pub(crate) dashboard: Option<SocketAddr>,
}

/// An application and its sidecar.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) application: Upstream,
    pub(crate) sidecar: Proxy,
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.kill_controller();
    }
}

impl Mesh {
    /// An empty one; `None`, and a message, if the proxy is not built.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with more arguments of the controller.
    pub(crate) fn start_with(arguments: &[&str]) -> Option<Self> {
        let Some(binary) = proxy() else {
            println!("skipped: there is no maglor-proxy; cargo build -p maglor-proxy makes it");
            return None;
        };
        let any = "127.0.0.1:0".parse().unwrap();
        let mut mesh = Self {
            dir: TempDir::with_prefix("maglor-mesh-").unwrap(),
            binary,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            controller: None,
            listen: any,
            admin: any,
            dashboard: None,
        };
        fs::create_dir(mesh.folder()).unwrap();
        mesh.certifies();
        mesh.put(
            "namespace",
            "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}",
        );
        mesh.mtls("permissive");
        mesh.start_controller();
        Some(mesh)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn folder(&self) -> PathBuf {
        self.path("resources")
    }

    /// An authority created like by `maglor identity ca`, and the accounts that may get certificates.
    fn certifies(&self) {
        let domain: TrustDomain = "mesh.test".parse().unwrap();
        let authority = Authority::create(&domain, SystemTime::now()).unwrap();
        let ca = self.path("ca");
        fs::create_dir(&ca).unwrap();
        fs::write(ca.join("ca.pem"), authority.certificate_pem()).unwrap();
        fs::write(ca.join("ca_key.pem"), authority.private_key_pem()).unwrap();
        fs::write(ca.join("trust_bundle.pem"), authority.certificate_pem()).unwrap();
        let mut tokens = String::new();
        for account in ACCOUNTS {
            let token = format!("the-token-of-the-account-{account}");
            tokens += &format!("{token} {NAMESPACE}/{account}\n");
            fs::write(self.path(&format!("token-{account}")), token).unwrap();
        }
        fs::write(self.path("tokens"), tokens).unwrap();
    }

    /// Starts it where it was before, if it was.
    pub(crate) fn start_controller(&mut self) {
        let ready = self.dir.path().join("ready");
        let _ = fs::remove_file(&ready);
        let child = Command::new(env!("CARGO_BIN_EXE_maglor-controller"))
            .args(["--listen", &self.listen.to_string()])
            .args(["--admin", &self.admin.to_string()])
            .arg("--folder")
            .arg(self.folder())
            .arg("--ca-dir")
            .arg(self.path("ca"))
            .arg("--tokens")
            .arg(self.path("tokens"))
            .args(["--trust-domain", "mesh.test"])
            .arg("--ready-file")
            .arg(&ready)
            .args(["--log-level", "warn"])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.controller = Some(child);
        let addresses: Value = wait::until(TIMEOUT, "the controller serves", || {
            serde_json::from_slice(&fs::read(&ready).ok()?).ok()
        });
        let address = |name: &str| addresses[name].as_str().unwrap().parse().unwrap();
        (self.listen, self.admin) = (address("listen"), address("admin"));
        self.dashboard = addresses["dashboard"]
            .as_str()
            .map(|text| text.parse().unwrap());
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill_controller(&mut self) {
        if let Some(mut child) = self.controller.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The address of the controller's admin port.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// The clients connected to the controller.
    pub(crate) fn sessions(&self) -> usize {
        let sessions = RawHttp1::connect(self.admin).get_local("/sessions").json();
        sessions.as_array().map_or(0, Vec::len)
    }

    /// The communication graph, as the controller shows it.
    pub(crate) fn graph(&self) -> Value {
        RawHttp1::connect(self.admin).get_local("/graph").json()
    }

    /// Puts a file in place of another of that name.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let partial = self.dir.path().join("partial");
        fs::write(&partial, text).unwrap();
        fs::rename(partial, self.file(name)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}.yaml"))
    }

    /// Whether plain text is accepted.
    pub(crate) fn mtls(&self, mode: &str) {
        self.put(
            "mesh",
            &format!(
                "{{apiVersion: maglor.dev/v1alpha1, kind: MeshConfig, metadata: {{name: default}}, \
                 spec: {{mtls: {mode}, trustDomain: mesh.test}}}}"
            ),
        );
    }

    /// Something of the mesh's own in the namespace.
    pub(crate) fn policy(&self, kind: &str, name: &str, spec: &str) {
        self.put(
            name,
            &format!(
                "{{apiVersion: maglor.dev/v1alpha1, kind: {kind}, \
                 metadata: {{name: {name}, namespace: {NAMESPACE}}}, spec: {spec}}}"
            ),
        );
    }

    /// A Service at this address, port 80.
    pub(crate) fn service(&self, name: &str, address: &str) {
        self.put(
            &format!("service-{name}"),
            &format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {NAMESPACE}}}, \
                 spec: {{clusterIP: {address}, ports: [{{name: http, port: 80}}]}}}}"
            ),
        );
    }

    /// An endpoint of a Service; `conditions` as in an EndpointSlice.
    pub(crate) fn endpoint(&self, service: &str, pod: &str, at: SocketAddr, conditions: &str) {
        // Each has a port of its own, so each has a slice of its own.
        self.put(
            &format!("slice-{service}-{pod}"),
            &format!(
                "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {service}-{pod}, \
                 namespace: {NAMESPACE}, labels: {{kubernetes.io/service-name: {service}}}}}, addressType: IPv4, \
                 ports: [{{name: http, port: {}}}], endpoints: [{{addresses: [{}], conditions: {{{conditions}}}, \
                 targetRef: {{kind: Pod, name: {pod}, namespace: {NAMESPACE}}}}}]}}",
                at.port(),
                at.ip()
            ),
        );
    }

    pub(crate) fn without_endpoint(&self, service: &str, pod: &str) {
        self.remove(&format!("slice-{service}-{pod}"));
    }

    /// An application, and a sidecar that runs with this account.
    pub(crate) fn pod(&self, name: &str, account: &str) -> Pod {
        self.pod_at(name, account, 0)
    }

    /// The same with the port where others call it.
    pub(crate) fn pod_at(&self, name: &str, account: &str, inbound_port: u16) -> Pod {
        self.put(
            &format!("pod-{name}"),
            &format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {NAMESPACE}, \
                 labels: {{app: {account}}}, annotations: {{maglor.dev/injected: 'true'}}}}, \
                 spec: {{serviceAccountName: {account}, containers: []}}}}"
            ),
        );
        let application = Upstream::start(name);
        let sidecar = self
            .member("sidecar", name, account)
            .args(["--application", &application.address().to_string()])
            .args(["--inbound-port", &inbound_port.to_string()])
            .args(["--outbound-port", "0", "--outbound-grace", "0s"])
            .start();
        wait::eventually(TIMEOUT, "the sidecar is ready", || {
            sidecar.admin_get("/ready").status == 200
        });
        Pod {
            name: name.to_owned(),
            application,
            sidecar,
        }
    }

    /// A proxy that the controller certifies as this account.
    fn member(&self, role: &str, name: &str, account: &str) -> ProxyBuilder {
        let file = |file: &str| self.path(file).display().to_string();
        ProxyBuilder::new(&self.binary)
            .args([role, "--trust-domain", "mesh.test"])
            .args(["--control-plane", &self.listen.to_string()])
            .args(["--bind", "127.0.0.1", "--admin-port", "0"])
            .args(["--pod-namespace", NAMESPACE, "--pod-name", name])
            .args(["--token-file", &file(&format!("token-{account}"))])
            .args(["--trust-bundle", &file("ca/trust_bundle.pem")])
    }

    /// A proxy that the group `low` shares.
    pub(crate) fn shared_proxy(&self) -> Proxy {
        self.put(
            "pod-low-1",
            &format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: low-1, namespace: {NAMESPACE}, \
                 labels: {{maglor.dev/proxy-group: low}}, annotations: {{maglor.dev/injected: 'true'}}}}, \
                 spec: {{serviceAccountName: low-proxy-group, containers: []}}}}"
            ),
        );
        let cache = self.path("cache").display().to_string();
        let proxy = self
            .member("service", "low-1", "low-proxy-group")
            .args(["--cache-dir", &cache])
            .start();
        wait::eventually(TIMEOUT, "the proxy is ready", || {
            proxy.admin_get("/ready").status == 200
        });
        proxy
    }

    /// The content of an admin page of the controller.
    pub(crate) fn admin(&self, path: &str) -> Value {
        RawHttp1::connect(self.admin).get_local(path).json()
    }

    /// The proxy of the Gateway `web`, class `maglor`.
    pub(crate) fn gateway(&self) -> Proxy {
        self.put(
            "pod-web-maglor-1",
            &format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: web-maglor-1, namespace: {NAMESPACE}, \
                 labels: {{gateway.networking.k8s.io/gateway-name: web}}, \
                 annotations: {{maglor.dev/injected: outbound}}}}, \
                 spec: {{serviceAccountName: web-maglor, containers: []}}}}"
            ),
        );
        let cache = self.path("cache").display().to_string();
        let gateway = self
            .member("gateway", "web-maglor-1", "web-maglor")
            .args(["--cache-dir", &cache])
            .start();
        wait::eventually(TIMEOUT, "the gateway is ready", || {
            gateway.admin_get("/ready").status == 200
        });
        gateway
    }
}

impl Pod {
    /// The address for its clients.
    pub(crate) fn inbound(&self) -> SocketAddr {
        self.sidecar.listener("inbound")
    }

    /// Sends a request from this application; returns the status and the answering application.
    pub(crate) fn get(&self, service: &str, path: &str) -> (u16, String) {
        let mut client = RawHttp1::connect(self.sidecar.listener("outbound"));
        let response = client.request(request(service, path));
        let by = response.header("x-upstream").unwrap_or_default().to_owned();
        (response.status, by)
    }

    /// Requests of this application without pause.
    pub(crate) fn load(&self, service: &str, clients: usize) -> Load {
        Load::start(
            self.sidecar.listener("outbound"),
            clients,
            &request(service, "/"),
        )
    }

    /// Waits until calls of a service are answered.
    #[track_caller]
    pub(crate) fn reaches(&self, service: &str) {
        wait::eventually(TIMEOUT, "the service is known", || {
            self.get(service, "/").0 == 200
        });
    }
}

fn request(service: &str, path: &str) -> String {
    format!("GET http://{service}{path} HTTP/1.1\r\nhost: {service}\r\n\r\n")
}

/// The proxy that was built together with this test.
fn proxy() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let binary = own.parent().and_then(Path::parent)?.join("maglor-proxy");
    binary.exists().then_some(binary)
}
