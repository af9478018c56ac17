//! Istio's istiod (pilot-discovery), and its sidecars: pilot-agent with Envoy.

use std::fs;
use std::path::{Path, PathBuf};

use maglor_testkit::cluster::Kubectl;
use serde_json::{Value, json};

use super::chart::{self, Chart, Container};
use super::network::HOST;
use super::options;
use super::part::Recipe;
use super::plane::{ControlPlane, token};
use super::pods::Pod;
use super::sidecar::Sidecar;
use crate::error::{Doing, Error, Result};

const OWN: &str = "istio-system";
const SERVICE: &str = "istiod";
const WEBHOOK: u16 = 15_017;
/// The name in the certificate of istiod, which proxies reach by its address: pods here have no DNS.
const SERVER: &str = "istiod.istio-system.svc";
const CONTAINER: &str = "istio-proxy";
const WEBHOOKS: [&str; 3] = [
    "mutatingwebhookconfiguration/istio-sidecar-injector",
    "validatingwebhookconfiguration/istio-validator-istio-system",
    "validatingwebhookconfiguration/istiod-default-validator",
];

/// Istio.
#[derive(Debug)]
pub(super) struct Istio {
    programs: options::Istio,
    root: String,
}

impl Istio {
    pub(super) fn new(programs: options::Istio) -> Self {
        Self {
            programs,
            root: String::new(),
        }
    }

    /// Returns the values that the measurement needs; all else has the defaults of the chart.
    fn values(&self) -> Vec<String> {
        let envoy = self.programs.envoy.binary.display();
        let proxy = "meshConfig.defaultConfig";
        let values = [
            // Extensions of Istio's own build of Envoy, which upstream's has not.
            "telemetry.enabled=false".into(),
            "env.PILOT_ENABLE_ALPN_FILTER=false".into(),
            "env.PILOT_ENABLE_METADATA_EXCHANGE=false".into(),
            format!("{proxy}.binaryPath={envoy}"),
            format!("{proxy}.discoveryAddress={HOST}:15012"),
            // The number of ready endpoints, which the measurement reads.
            format!("{proxy}.proxyStatsMatcher.inclusionRegexps[0]=.*membership_healthy"),
        ];
        let values = values.into_iter();
        values
            .flat_map(|value| ["--set".to_owned(), value])
            .collect()
    }
}

impl ControlPlane for Istio {
    fn name(&self) -> &'static str {
        "Istio"
    }

    fn namespace(&self) -> &'static str {
        OWN
    }

    fn mark(&self) -> [&'static str; 2] {
        ["label", "istio-injection=enabled"]
    }

    fn sidecar(&self) -> Sidecar {
        Sidecar {
            container: CONTAINER,
            audience: "istio-ca",
            inbound: 15_006,
            outbound: 15_001,
            metrics: (15_090, "/stats/prometheus"),
            control: &[],
        }
    }

    fn install(&mut self, kubectl: &Kubectl, _folder: &Path) -> Result<Vec<Recipe>> {
        let charts = self.programs.source.join("manifests/charts");
        let base = chart::render(&charts.join("base"), "istio-base", OWN, &[])?;
        Chart::read(kubectl, &base)?.apply(kubectl, OWN, &[])?;
        let folder = charts.join("istio-control/istio-discovery");
        let yaml = chart::render(&folder, SERVICE, OWN, &self.values())?;
        let chart = Chart::read(kubectl, &yaml)?;
        chart.apply(kubectl, OWN, &[(SERVICE, "https-webhook", WEBHOOK)])?;
        let mut container = chart.container(OWN, SERVICE, "discovery")?;
        let kubeconfig = kubectl.kubeconfig().display().to_string();
        container
            .environment
            .push(("KUBECONFIG".into(), kubeconfig));
        Ok(vec![Recipe {
            name: SERVICE.into(),
            program: self.programs.discovery.clone(),
            arguments: container.arguments,
            environment: container.environment,
            folder: None,
            ready: (8080, "/ready"),
        }])
    }

    fn ready(&mut self, kubectl: &Kubectl, _folder: &Path) -> Result<()> {
        self.root = chart::secret(kubectl, OWN, "istio-ca-secret", "ca-cert.pem")?;
        let strict = json!({
            "apiVersion": "security.istio.io/v1",
            "kind": "PeerAuthentication",
            "metadata": {"name": "default", "namespace": OWN},
            "spec": {"mtls": {"mode": "STRICT"}},
        });
        kubectl.apply(&strict.to_string()).map_err(Error::from)
    }

    fn proxy(&self, pod: &Pod, folder: &Path) -> Result<Recipe> {
        let found = pod.container(CONTAINER);
        let found = found.ok_or_else(|| Error::parse("a pod", format!("no {CONTAINER}")))?;
        let mut container = Container::read(found, &pod.object);
        // Without an address of the CA, the agent takes the one of istiod, for which it can be given a name.
        let source = &self.programs.source;
        let bootstrap = source.join("tools/packaging/common/envoy_bootstrap.json");
        let bootstrap = bootstrap.display().to_string();
        for (name, value) in [
            ("CA_ADDR", ""),
            ("ISTIOD_SAN", SERVER),
            ("ISTIO_BOOTSTRAP", bootstrap.as_str()),
        ] {
            container.environment.push((name.into(), value.into()));
        }
        self.files(pod, folder)?;
        Ok(Recipe {
            name: pod.name.clone(),
            program: self.programs.agent.clone(),
            arguments: container.arguments,
            environment: container.environment,
            folder: None,
            ready: (15_021, "/healthz/ready"),
        })
    }

    fn endpoints(&self, metrics: &str) -> Option<u32> {
        let mut lines = metrics.lines().filter(|line| {
            line.starts_with("envoy_cluster_membership_healthy{")
                && line.contains("outbound|80||s0.scale.svc")
        });
        lines.next()?.rsplit(' ').next()?.parse().ok()
    }

    fn webhooks(&self) -> &'static [&'static str] {
        &WEBHOOKS
    }
}

impl Istio {
    /// Writes the volumes of a sidecar, at the paths that the agent opens relative to its folder.
    fn files(&self, pod: &Pod, folder: &Path) -> Result<()> {
        let write = |path: &str, text: &str| {
            let path: PathBuf = folder.join(path);
            let parent = path.parent().unwrap_or(folder);
            fs::create_dir_all(parent).doing("make a folder")?;
            fs::write(&path, text).doing(format!("write {}", path.display()))
        };
        let token = fs::read_to_string(token(folder)).doing("read a token")?;
        write("var/run/secrets/tokens/istio-token", &token)?;
        write("var/run/secrets/istio/root-cert.pem", &self.root)?;
        for field in ["labels", "annotations"] {
            let path = format!("etc/istio/pod/{field}");
            write(&path, &lines(&pod.object["metadata"][field]))?;
        }
        Ok(())
    }
}

/// Returns labels or annotations in the form of the files that Kubernetes mounts: `key="value"`.
fn lines(fields: &Value) -> String {
    let fields = fields.as_object().into_iter().flatten();
    let lines = fields.map(|(name, value)| format!("{name}={value}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted() {
        let fields = json!({"app": "s0", "note": "a \"b\""});
        assert_eq!(lines(&fields), "app=\"s0\"\nnote=\"a \\\"b\\\"\"\n");
        assert_eq!(lines(&Value::Null), "");
    }
}
