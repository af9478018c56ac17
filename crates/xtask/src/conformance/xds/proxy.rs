//! Our proxy as a client of go-control-plane.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, anyhow, ensure};
use maglor_testkit::{Proxy, ProxyBuilder, Upstream};
use serde_json::Value;

use super::super::report::Report;
use super::super::tools::Running;
use super::controller::NAME;
use super::{Asker, free_port, go, took, until};

const NODE: &str = "shop/proxy";
/// The number of requests per measurement.
const MANY: usize = 60;

/// go-control-plane, with its control address.
struct Server {
    running: Running,
    control: SocketAddr,
}

/// The environment of the cases.
struct Bench<'a> {
    check: &'a Path,
    listen: SocketAddr,
    server: Option<Server>,
    proxy: Proxy,
    asker: Asker,
    servers: [Upstream; 2],
    version: u32,
}

pub(super) fn run(proxy: &Path, check: &Path, report: &mut Report) -> anyhow::Result<()> {
    let listen = free_port()?;
    let builder = ProxyBuilder::new(proxy).config(format!(
        "admin: {{address: '127.0.0.1:0'}}
control_plane: {{cluster: control, node: {{id: {NODE}, cluster: test}}}}
listeners:
- {{name: out, address: '127.0.0.1:0', http: {{discovery: {{namespace: shop, timeout: 5s}}, virtual_hosts: []}}}}
clusters:
- {{name: control, endpoints: ['{listen}']}}
"
    ));
    let mut bench = Bench {
        check,
        listen,
        server: None,
        proxy: builder.try_start().map_err(|error| anyhow!("{error}"))?,
        asker: Asker::new()?,
        servers: ["a", "b"].map(Upstream::start),
        version: 0,
    };
    bench.start()?;
    bench.run(report);
    match &bench.server {
        Some(server) => report.raw("go-control-plane.txt", &server.running.text()?),
        None => Ok(()),
    }
}

impl Bench<'_> {
    fn start(&mut self) -> anyhow::Result<()> {
        let mut command = Command::new(self.check);
        command.arg("server").arg(self.listen.to_string());
        let (running, control) = go::start(command)?;
        self.server = Some(Server { running, control });
        Ok(())
    }

    fn control(&self) -> anyhow::Result<SocketAddr> {
        let server = self.server.as_ref().context("the server is not running")?;
        Ok(server.control)
    }

    /// Sets the endpoints; `more` is the rest of the query.
    fn set(&mut self, servers: &[usize], more: &str) -> anyhow::Result<()> {
        self.version += 1;
        let endpoints = servers
            .iter()
            .map(|at| self.servers[*at].address().to_string());
        let endpoints = endpoints.collect::<Vec<_>>().join(",");
        let path = format!(
            "/set?node={NODE}&version={}&service={NAME}&endpoints={endpoints}{more}",
            self.version
        );
        let (status, body) = self.asker.get(self.control()?, "localhost", &path)?;
        ensure!(
            status == 200,
            "{status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(())
    }

    /// Returns the requests of the proxy that the server received.
    fn heard(&self) -> anyhow::Result<Vec<Value>> {
        let heard = self.asker.json(self.control()?, "/heard")?;
        Ok(heard.as_array().cloned().unwrap_or_default())
    }

    /// Checks that exactly the existing servers respond, about equally often.
    fn even(&self, servers: &[usize]) -> anyhow::Result<()> {
        let mut counts = [0_usize; 2];
        for _ in 0..MANY {
            let (status, body) = self.get()?;
            let at = [b"a", b"b"].iter().position(|name| name[..] == body);
            let at = at.filter(|_| status == 200);
            counts
                [at.with_context(|| format!("{status} {}", String::from_utf8_lossy(&body)))?] += 1;
        }
        for (at, count) in counts.into_iter().enumerate() {
            let wanted = match servers.contains(&at) {
                true => MANY / servers.len(),
                false => 0,
            };
            ensure!(count.abs_diff(wanted) <= MANY / 6, "{counts:?} of {MANY}");
        }
        Ok(())
    }

    fn get(&self) -> anyhow::Result<(u16, bytes::Bytes)> {
        self.asker.get(self.proxy.listener("out"), "web", "/")
    }

    fn status(&self, wanted: u16) -> anyhow::Result<()> {
        let (status, _) = self.get()?;
        ensure!(status == wanted, "status {status}");
        Ok(())
    }

    fn case(
        &mut self,
        report: &mut Report,
        what: &str,
        run: impl FnOnce(&mut Self) -> anyhow::Result<String>,
    ) {
        let done = run(self);
        report.case(format!("go-control-plane: {what}"), done);
    }

    fn run(&mut self, report: &mut Report) {
        self.case(report, "our proxy takes routes and endpoints", |this| {
            this.set(&[0], "")?;
            until("the endpoint", || this.even(&[0])).map(took)
        });
        self.case(report, "an endpoint is added, and balanced", |this| {
            this.set(&[0, 1], "")?;
            until("even shares", || this.even(&[0, 1])).map(took)
        });
        self.case(report, "an endpoint is removed", |this| {
            this.set(&[1], "")?;
            until("the other endpoint", || this.even(&[1])).map(took)
        });
        self.case(report, "the route changes", |this| {
            this.set(&[1], "&answer=418")?;
            until("the new route", || this.status(418)).map(took)
        });
        self.case(report, "everything was acknowledged", |this| {
            let heard = this.heard()?;
            let acks = heard.iter().filter(|one| one["what"] == "ack").count();
            let nacks = heard.iter().filter(|one| one["what"] == "nack").count();
            ensure!(acks >= 6 && nacks == 0, "{acks} ACKs, {nacks} NACKs");
            Ok(format!("{acks} ACKs, no NACK"))
        });
        self.case(
            report,
            "a bad cluster is refused (NACK), the last good one stays",
            |this| {
                // Back to the cluster first: one that is not used is unknown.
                this.set(&[1], "")?;
                until("the cluster", || this.even(&[1]))?;
                this.set(&[0], "&bad=true")?;
                let mut said = String::new();
                until("a refusal", || {
                    let heard = this.heard()?;
                    let nack = heard.iter().find(|one| one["what"] == "nack");
                    let nack = nack.context("the proxy rejected nothing")?;
                    ensure!(nack["type"] == "Cluster", "{nack}");
                    said = nack["error"].as_str().unwrap_or_default().to_owned();
                    Ok(())
                })?;
                until("the endpoints that came with it", || this.even(&[0]))?;
                Ok(said)
            },
        );
        self.restart(report);
    }

    fn restart(&mut self, report: &mut Report) {
        self.case(report, "the server is killed: all goes on", |this| {
            this.set(&[0, 1], "")?;
            until("even shares", || this.even(&[0, 1]))?;
            this.server = None;
            this.even(&[0, 1])?;
            Ok(format!("{MANY} requests"))
        });
        self.case(
            report,
            "the server is back: what has changed is taken, by versions",
            |this| {
                this.start()?;
                this.set(&[1], "")?;
                let time = until("the endpoint that is left", || this.even(&[1]))?;
                let heard = this.heard()?;
                let first = heard.iter().filter(|one| one["what"] == "ask");
                let returned =
                    first.filter(|one| one["has"].as_object().is_some_and(|has| !has.is_empty()));
                let returned = returned.count();
                ensure!(returned > 0, "no initial_resource_versions: {heard:?}");
                Ok(format!(
                    "{}, {returned} kinds with their versions",
                    took(time)
                ))
            },
        );
    }
}
