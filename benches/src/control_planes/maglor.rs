//! Maglor's controller and proxies.

use std::fs;
use std::path::{Path, PathBuf};

use maglor_testkit::cluster::Kubectl;

use super::chart::{self, Chart};
use super::network::HOST;
use super::options;
use super::part::Recipe;
use super::plane::{ControlPlane, token};
use super::pods::{NAMESPACE, Pod};
use super::sidecar::Sidecar;
use crate::child;
use crate::error::{Doing, Result};

const OWN: &str = "maglor";
const SERVICE: &str = "maglor-controller";
const CONTROL: u16 = 15_010;
const ADMIN: u16 = 15_011;
const PROXY_ADMIN: u16 = 15_020;
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

    fn sidecar(&self) -> Sidecar {
        Sidecar {
            container: "maglor-proxy",
            audience: "maglor.dev/identity",
            inbound: 15_006,
            outbound: 15_001,
            metrics: (PROXY_ADMIN, "/metrics"),
            control: &[],
        }
    }

    fn install(&mut self, kubectl: &Kubectl, _folder: &Path) -> Result<Vec<Recipe>> {
        let program = self.programs.controller.display().to_string();
        kubectl.apply(&child::output(&program, &["crds"])?)?;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart");
        let yaml = chart::render(&folder, OWN, OWN, &[])?;
        let chart = Chart::read(kubectl, &yaml)?;
        chart.apply(kubectl, OWN, &PORTS)?;
        let mut container = chart.container(OWN, SERVICE, "controller")?;
        let kubeconfig = kubectl.kubeconfig().display().to_string();
        container
            .environment
            .push(("KUBECONFIG".into(), kubeconfig));
        Ok(vec![Recipe {
            name: container.name,
            program: self.programs.controller.clone(),
            arguments: container.arguments,
            environment: container.environment,
            folder: None,
            ready: (ADMIN, "/ready"),
        }])
    }

    fn ready(&mut self, kubectl: &Kubectl, folder: &Path) -> Result<()> {
        self.roots = folder.join("roots.pem");
        let roots = chart::secret(kubectl, OWN, "maglor-ca", "ca.crt")?;
        fs::write(&self.roots, roots).doing("write the roots")
    }

    fn proxy(&self, pod: &Pod, folder: &Path) -> Result<Recipe> {
        let control = format!("{HOST}:{CONTROL}");
        let (token, roots) = (token(folder), &self.roots);
        let arguments = [
            "sidecar".into(),
            format!("--control-plane={control}"),
            format!("--pod-namespace={NAMESPACE}"),
            format!("--pod-name={}", pod.name),
            format!("--pod-ips={}", pod.ip),
            "--log-level=info".into(),
            format!("--token-file={}", token.display()),
            format!("--trust-bundle={}", roots.display()),
        ];
        Ok(Recipe {
            name: pod.name.clone(),
            program: self.programs.proxy.clone(),
            arguments: arguments.into(),
            environment: Vec::new(),
            folder: None,
            ready: (PROXY_ADMIN, "/ready"),
        })
    }

    fn endpoints(&self, metrics: &str) -> Option<u32> {
        let lines = metrics.lines();
        let mut lines = lines.filter(|line| {
            line.starts_with("maglor_upstream_available_endpoints{")
                && line.contains("s0.scale.svc")
        });
        lines.next()?.rsplit(' ').next()?.parse().ok()
    }

    fn webhooks(&self) -> &'static [&'static str] {
        &WEBHOOKS
    }
}
