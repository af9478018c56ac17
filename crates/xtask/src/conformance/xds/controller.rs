//! Our controller with a folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::super::tools::Running;
use super::{Asker, free_port, until};

/// The only service that clients request.
pub(super) const NAME: &str = "web.shop.svc.cluster.local:80";

/// The protocol, which also determines the kind of routes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Speaks {
    Grpc,
    Http,
}

/// A controller that can be killed and started again at its port.
pub(super) struct Controller {
    binary: PathBuf,
    speaks: Speaks,
    folder: TempDir,
    pub(super) listen: SocketAddr,
    admin: SocketAddr,
    running: Option<Running>,
}

impl Controller {
    pub(super) fn start(binary: &Path, speaks: Speaks) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("resources"))?;
        let controller = Self {
            binary: binary.to_owned(),
            speaks,
            folder,
            listen: free_port()?,
            admin: free_port()?,
            running: None,
        };
        controller.put("services.yaml", &controller.services())?;
        Ok(controller)
    }

    /// Starts it, or starts it again.
    pub(super) fn run(&mut self) -> anyhow::Result<()> {
        let ready = self.folder.path().join("ready.json");
        let _ = std::fs::remove_file(&ready);
        let mut command = Command::new(&self.binary);
        command
            .arg("--plain-text")
            .arg(format!("--listen={}", self.listen))
            .arg(format!("--admin={}", self.admin))
            .arg("--folder")
            .arg(self.folder.path().join("resources"))
            .arg("--ready-file")
            .arg(&ready);
        self.running = Some(Running::start(command)?);
        until("the controller serves", || {
            std::fs::metadata(&ready).map(drop).map_err(Into::into)
        })?;
        Ok(())
    }

    pub(super) fn kill(&mut self) {
        self.running = None;
    }

    /// Replaces a file as a whole, as editors do.
    fn put(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let new = self.folder.path().join(name);
        std::fs::write(&new, text)?;
        Ok(std::fs::rename(
            &new,
            self.folder.path().join("resources").join(name),
        )?)
    }

    fn services(&self) -> String {
        let port = match self.speaks {
            Speaks::Grpc => "grpc",
            Speaks::Http => "http",
        };
        let service = |name: &str| {
            format!(
                "---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec: {{clusterIP: None, ports: [{{port: 80, name: {port}}}]}}
---
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {{name: {name}, namespace: shop}}
spec: {{targetRefs: [{{name: {name}}}], cluster: {{policy: round-robin}}}}
"
            )
        };
        service("web") + &service("other")
    }

    /// Writes the endpoints of a service, a slice for each port.
    pub(super) fn endpoints(&self, service: &str, servers: &[SocketAddr]) -> anyhow::Result<()> {
        let port = match self.speaks {
            Speaks::Grpc => "grpc",
            Speaks::Http => "http",
        };
        let slice = |(at, server): (usize, &SocketAddr)| {
            format!(
                "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {service}-{at}, namespace: shop, labels: {{kubernetes.io/service-name: {service}}}}}
addressType: IPv4
ports: [{{name: {port}, port: {}}}]
endpoints: [{{addresses: ['{}']}}]
",
                server.port(),
                server.ip()
            )
        };
        let text: String = servers.iter().enumerate().map(slice).collect();
        self.put(&format!("{service}-slices.yaml"), &text)
    }

    /// Writes a route with one rule, in YAML's flow style; no route without a rule.
    pub(super) fn route(&self, rule: Option<&str>) -> anyhow::Result<()> {
        let kind = match self.speaks {
            Speaks::Grpc => "GRPCRoute",
            Speaks::Http => "HTTPRoute",
        };
        let text = rule.map_or_else(String::new, |rule| {
            format!(
                "
apiVersion: gateway.networking.k8s.io/v1
kind: {kind}
metadata: {{name: web, namespace: shop}}
spec:
  parentRefs: [{{group: '', kind: Service, name: web}}]
  rules: [{rule}]
"
            )
        });
        self.put("routes.yaml", &text)
    }

    /// Returns a rule with a regular expression that Go and Envoy do not support.
    pub(super) fn bad_rule(&self) -> String {
        // The flag `x` allows blanks in the expression; RE2 has no such flag.
        let matches = match self.speaks {
            Speaks::Grpc => {
                "{method: {type: RegularExpression, service: '(?x) grpc.* ', method: '.*'}}"
            }
            Speaks::Http => "{path: {type: RegularExpression, value: '(?x) /.* '}}",
        };
        format!("{{matches: [{matches}], backendRefs: [{{name: other, port: 80}}]}}")
    }

    /// Returns the rejections of clients, from the admin port.
    pub(super) fn nacks(&self, asker: &Asker) -> anyhow::Result<Vec<String>> {
        let sessions = asker.json(self.admin, "/sessions")?;
        let sessions = sessions.as_array().cloned().unwrap_or_default();
        let nacks = sessions.iter().filter_map(|one| one["nacks"].as_array());
        let reason = |nack: &Value| {
            let text = |field: &str| nack[field].as_str().unwrap_or("-").to_owned();
            format!("{}: {}", text("kind"), text("reason"))
        };
        Ok(nacks.flatten().map(reason).collect())
    }
}
