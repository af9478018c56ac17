//! Maglor's controller and proxies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use maglor_cluster::Kubectl;

use super::chart::{self, Chart};
use super::options;
use super::part::Recipe;
use super::plane::{ControlPlane, token};
use super::pods::{NAMESPACE, Pod};
use crate::child;
use crate::error::{Doing, Error, Result};

const OWN: &str = "maglor";
const SERVICE: &str = "maglor-controller";
const CONTROL: &str = "127.0.0.1:15010";
const ADMIN: u16 = 15_011;
const PORTS: [(&str, &str, u16); 2] = [
    (SERVICE, "https-webhook", 15_012),
    (SERVICE, "http-admin", ADMIN),
];
const WEBHOOKS: [&str; 2] = [
    "mutatingwebhookconfiguration/maglor-inject",
    "validatingwebhookconfiguration/maglor-validate",
];

/// Maglor.
#[derive(Debug)]
pub(super) struct Maglor {
    programs: options::Maglor,
    roots: PathBuf,
}

impl Maglor {
    pub(super) fn new(programs: options::Maglor) -> Self {
        Self {
            programs,
            roots: PathBuf::new(),
        }
    }
}

impl ControlPlane for Maglor {
    fn name(&self) -> &'static str {
        "Maglor"
    }

    fn namespace(&self) -> &'static str {
        OWN
    }

    fn mark(&self) -> [&'static str; 2] {
        ["label", "maglor.dev/inject=enabled"]
    }

    fn sidecar(&self) -> &'static str {
        "maglor-proxy"
    }

    fn audience(&self) -> &'static str {
        "maglor.dev/identity"
    }

    fn install(&mut self, kubectl: &Kubectl, _folder: &Path) -> Result<Vec<Recipe>> {
        let program = self.programs.controller.display().to_string();
        kubectl.apply(&child::output(&program, &["crds"])?)?;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart");
        let yaml = chart::render(&folder, OWN, OWN, &[])?;
        let chart = Chart::read(kubectl, &yaml)?;
        chart.apply(kubectl, OWN, &PORTS)?;
        let variables = [("POD_NAMESPACE", OWN), ("POD_NAME", "replica")];
        let container = chart.container(SERVICE, "controller", &variables)?;
        let kubeconfig = kubectl.kubeconfig().display().to_string();
        Ok(vec![Recipe {
            name: container.name,
            program: self.programs.controller.clone(),
            arguments: container.arguments,
            environment: vec![("KUBECONFIG".into(), kubeconfig)],
            folder: None,
            ready: ADMIN,
        }])
    }

    fn ready(&mut self, kubectl: &Kubectl, folder: &Path) -> Result<()> {
        self.roots = folder.join("roots.pem");
        let roots = chart::secret(kubectl, OWN, "maglor-ca", "ca.crt")?;
        fs::write(&self.roots, roots).doing("write the roots")
    }

    fn proxy(&self, pod: &Pod, folder: &Path) -> Result<Command> {
        let place = pod.place;
        let port = |address: std::net::SocketAddr| address.port().to_string();
        let mut command = Command::new(&self.programs.proxy);
        command
            .args(["sidecar", "--control-plane", CONTROL])
            .args(["--bind", "127.0.0.1", "--pod-namespace", NAMESPACE])
            .args(["--pod-name", &pod.name, "--pod-ips", &place.ip.to_string()])
            .args(["--inbound-port", &port(place.inbound())])
            .args(["--outbound-port", &port(place.outbound())])
            .args(["--admin-port", &port(place.admin())])
            .args(["--log-level", "info", "--token-file"])
            .arg(token(folder))
            .arg("--trust-bundle")
            .arg(&self.roots);
        Ok(command)
    }

    fn endpoints(&self, metrics: &str) -> Option<u32> {
        let lines = metrics.lines();
        let mut lines = lines.filter(|line| {
            line.starts_with("maglor_upstream_available_endpoints{")
                && line.contains("s0.scale.svc")
        });
        lines.next()?.rsplit(' ').next()?.parse().ok()
    }

    fn uninstall(&self, kubectl: &Kubectl) -> Result<()> {
        for webhook in WEBHOOKS {
            let delete = ["delete", webhook, "--ignore-not-found"];
            kubectl.run(&delete).map_err(Error::from)?;
        }
        Ok(())
    }
}
