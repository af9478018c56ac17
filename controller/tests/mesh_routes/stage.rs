//! A mesh of one proxy on a folder of resources, and textual expectations.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, RawResponse, TIMEOUT, Upstream, eventually};
use serde_json::Value;

pub(crate) const NAMESPACE: &str = "suite";

/// The proxy's program, built with this one; `None` where only this package was built.
pub(crate) fn proxy_program() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_maglor-controller")).with_file_name("maglor-proxy");
    if program.exists() {
        return Some(program);
    }
    println!(
        "skipped: there is no {}; build maglor-proxy",
        program.display()
    );
    None
}

struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two versions of a server, the controller, and a proxy for each namespace.
pub(crate) struct Mesh {
    v1: Upstream,
    v2: Upstream,
    folder: tempfile::TempDir,
    other: tempfile::TempDir,
    _controller: Controller,
    address: String,
    program: PathBuf,
}

impl Mesh {
    pub(crate) fn start(program: PathBuf) -> Self {
        let (v1, v2) = (Upstream::start("echo-v1"), Upstream::start("echo-v2"));
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("services.yaml"), services(&v1, &v2)).unwrap();
        let ready = other.path().join("ready.json");
        let child = Command::new(env!("CARGO_BIN_EXE_maglor-controller"))
            .args(["--plain-text", "--listen", "127.0.0.1:0", "--folder"])
            .arg(folder.path())
            .arg("--ready-file")
            .arg(&ready)
            .spawn()
            .unwrap();
        let controller = Controller(child);
        eventually(Duration::from_secs(20), "the controller serves", || {
            ready.exists()
        });
        let addresses: Value = serde_json::from_slice(&std::fs::read(&ready).unwrap()).unwrap();
        Self {
            v1,
            v2,
            folder,
            other,
            _controller: controller,
            address: addresses["listen"].as_str().unwrap().to_owned(),
            program,
        }
    }

    /// Routes in place of those before.
    pub(crate) fn routes(&self, text: &str) {
        let new = self.other.path().join("routes.yaml");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, self.folder.path().join("routes.yaml")).unwrap();
    }

    /// The sidecar of a client in a namespace.
    pub(crate) fn client(&self, namespace: &str) -> Proxy {
        let config = format!(
            "admin: {{address: '127.0.0.1:0'}}
control_plane: {{cluster: control, node: {{id: {namespace}/client}}}}
listeners:
- name: out
  address: 127.0.0.1:0
  http: {{discovery: {{namespace: {NAMESPACE}, timeout: 10s}}}}
clusters:
- {{name: control, endpoints: ['{}']}}
",
            self.address
        );
        ProxyBuilder::new(&self.program).config(config).start()
    }
}

fn services(v1: &Upstream, v2: &Upstream) -> String {
    let mut text = String::new();
    let ports = "{name: http, port: 80, appProtocol: http}, {name: http-alt, port: 8080, appProtocol: http}, {name: grpc, port: 7070, appProtocol: kubernetes.io/h2c}";
    for (name, of) in [
        ("echo", vec![v1, v2]),
        ("echo-v1", vec![v1]),
        ("echo-v2", vec![v2]),
    ] {
        write!(
            text,
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\nspec: {{ports: [{ports}]}}\n"
        )
        .unwrap();
        for (i, upstream) in of.iter().enumerate() {
            let port = upstream.address().port();
            write!(
                text,
                "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-{i}, namespace: {NAMESPACE}, labels: {{kubernetes.io/service-name: {name}}}}}\n\
                 ports: [{{name: http, port: {port}}}, {{name: http-alt, port: {port}}}, {{name: grpc, port: {port}}}]\n\
                 endpoints: [{{addresses: [127.0.0.1]}}]\n"
            )
            .unwrap();
        }
    }
    text
}

/// A route with these rules (YAML, indented by two) attached to a port of a Service.
pub(crate) fn route(
    kind: &str,
    namespace: &str,
    service: &str,
    port: Option<u16>,
    rules: &str,
) -> String {
    let port = port
        .map(|port| format!(", port: {port}"))
        .unwrap_or_default();
    format!(
        "---
apiVersion: gateway.networking.k8s.io/v1
kind: {kind}
metadata: {{name: of-{service}, namespace: {namespace}}}
spec:
  parentRefs: [{{group: '', kind: Service, name: {service}, namespace: {NAMESPACE}{port}}}]
  rules:
{rules}"
    )
}

/// A request and the expected result, as text: `[METHOD] TARGET [name:value…] -> STATUS
/// [by BACKEND] [location URL] [+name:value…] [-name…] [got name:value…] [got -name…] [path PATH]`.
///
/// `+` and `-` are headers of the response, `got` those that the server was sent.
pub(crate) fn case(mesh: &Mesh, client: &Proxy, host: &str, text: &str) -> Result<(), String> {
    let (request, expected) = text.split_once(" -> ").unwrap();
    let mut words = request.split(' ');
    let target = words.next().unwrap();
    let mut head = format!("GET {target} HTTP/1.1\r\n");
    let mut host = host.to_owned();
    for word in words {
        match word.split_once(':').unwrap() {
            ("host", value) => value.clone_into(&mut host),
            (name, value) => write!(head, "{name}: {value}\r\n").unwrap(),
        }
    }
    write!(head, "host: {host}\r\n\r\n").unwrap();
    let response = RawHttp1::connect(client.listener("out")).request(head);
    expect(mesh, &response, expected).map_err(|what| format!("{text}: {what}"))
}

fn expect(mesh: &Mesh, response: &RawResponse, expected: &str) -> Result<(), String> {
    let mut words = expected.split(' ');
    let status = words.next().unwrap();
    if response.status.to_string() != status {
        return Err(format!("got {} {}", response.status, response.text()));
    }
    let who = response.text().to_owned();
    let server = if who == "echo-v2" { &mesh.v2 } else { &mesh.v1 };
    while let Some(word) = words.next() {
        let (found, wanted) = match word {
            "by" => (who.clone(), words.next().unwrap().to_owned()),
            "location" => {
                let location = response.header("location").unwrap_or_default();
                (location.to_owned(), words.next().unwrap().to_owned())
            }
            "path" => (
                server.last().uri.path().to_owned(),
                words.next().unwrap().to_owned(),
            ),
            "got" => {
                let last = server.last();
                let header = words.next().unwrap();
                let (name, wanted) = header.split_once(':').unwrap_or((&header[1..], ""));
                let values = last.headers.get_all(name).iter();
                let values: Vec<&str> = values.map(|value| value.to_str().unwrap()).collect();
                (values.join(","), wanted.to_owned())
            }
            other => {
                let (name, wanted) = other[1..].split_once(':').unwrap_or((&other[1..], ""));
                (response.header_all(name).join(","), wanted.to_owned())
            }
        };
        if found != wanted {
            return Err(format!("{word}: `{found}` instead of `{wanted}`"));
        }
    }
    Ok(())
}

/// Waits for the first case, which distinguishes these routes from others; then all apply at once.
#[track_caller]
pub(crate) fn holds(mesh: &Mesh, client: &Proxy, host: &str, routes: &str, cases: &[&str]) {
    mesh.routes(routes);
    eventually(TIMEOUT, cases[0], || {
        case(mesh, client, host, cases[0]).is_ok()
    });
    for text in cases {
        case(mesh, client, host, text).unwrap_or_else(|what| panic!("{what}"));
    }
}
