//! Linkerd's destination, identity, policy and injection controllers, and linkerd2-proxy.

use std::fs;
use std::path::Path;

use maglor_testkit::cluster::Kubectl;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, IsCa, KeyPair, KeyUsagePurpose,
};

use super::chart::{self, Chart};
use super::options;
use super::part::Recipe;
use super::plane::{ControlPlane, token};
use super::pods::{NAMESPACE, Pod};
use super::sidecar::{APPLICATION, Sidecar};
use crate::child;
use crate::error::{Doing, Error, Result};

const OWN: &str = "linkerd";
const INJECTOR: &str = "linkerd-proxy-injector";
/// Ports that the chart has twice, in different pods.
const INJECTION: u16 = 18_443;
const IDENTITY_ADMIN: u16 = 19_990;
/// Ports of proxies, as the chart has them.
const INBOUND: u16 = 4143;
const OUTBOUND: u16 = 4140;
const PROXY_ADMIN: u16 = 4191;
/// Ports of a pod's loopback that lead to the control plane.
const DESTINATION: u16 = 18_086;
const POLICY: u16 = 18_090;
const IDENTITY: u16 = 18_080;
const ISSUER: &str = "identity.linkerd.cluster.local";
const NETWORKS: &str = "10.0.0.0/8,100.64.0.0/10,172.16.0.0/12,192.168.0.0/16,fd00::/8";
/// Deployment, container, Secret of its certificate, port of `/ready`, arguments in place of the chart's.
const PARTS: [(&str, &str, Option<&str>, u16, &str); 5] = [
    ("linkerd-destination", "destination", None, 9996, ""),
    (
        "linkerd-identity",
        "identity",
        None,
        IDENTITY_ADMIN,
        "-admin-addr=:19990",
    ),
    (
        "linkerd-destination",
        "policy",
        Some("linkerd-policy-validator-k8s-tls"),
        9990,
        "",
    ),
    (
        INJECTOR,
        "proxy-injector",
        Some("linkerd-proxy-injector-k8s-tls"),
        9995,
        "-addr=:18443",
    ),
    (
        "linkerd-destination",
        "sp-validator",
        Some("linkerd-sp-validator-k8s-tls"),
        9997,
        "",
    ),
];
const WEBHOOKS: [&str; 3] = [
    "mutatingwebhookconfiguration/linkerd-proxy-injector-webhook-config",
    "validatingwebhookconfiguration/linkerd-sp-validator-webhook-config",
    "validatingwebhookconfiguration/linkerd-policy-validator-webhook-config",
];

/// Linkerd.
#[derive(Debug)]
pub(super) struct Linkerd {
    programs: options::Linkerd,
    root: String,
}

impl Linkerd {
    pub(super) fn new(programs: options::Linkerd) -> Self {
        Self {
            programs,
            root: String::new(),
        }
    }

    /// Renders the chart, with a new root as the issuer of certificates.
    fn render(&self, charts: &Path, folder: &Path) -> Result<String> {
        let file = |key: &str, name: &str| {
            let path = folder.join(name);
            ["--set-file".to_owned(), format!("{key}={}", path.display())]
        };
        let mut values = Vec::new();
        values.extend(file("identityTrustAnchorsPEM", "crt.pem"));
        values.extend(file("identity.issuer.tls.crtPEM", "crt.pem"));
        values.extend(file("identity.issuer.tls.keyPEM", "key.pem"));
        chart::render(&charts.join("linkerd-control-plane"), OWN, OWN, &values)
    }

    /// Writes the files that a program expects below `/run/linkerd`.
    fn files(&self, folder: &Path, issuer: &Path, values: &str) -> Result<()> {
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            let parent = path.parent().unwrap_or(folder);
            fs::create_dir_all(parent).doing("make a folder")?;
            fs::write(&path, text).doing(format!("write {}", path.display()))
        };
        write("config/values", values)?;
        write("identity/trust-roots/ca-bundle.crt", &self.root)?;
        write("identity/issuer/crt.pem", &self.root)?;
        let key = fs::read_to_string(issuer).doing("read the issuer's key")?;
        write("identity/issuer/key.pem", &key)
    }
}

impl ControlPlane for Linkerd {
    fn name(&self) -> &'static str {
        "Linkerd"
    }

    fn namespace(&self) -> &'static str {
        OWN
    }

    fn mark(&self) -> [&'static str; 2] {
        ["annotate", "linkerd.io/inject=enabled"]
    }

    fn sidecar(&self) -> Sidecar {
        Sidecar {
            container: "linkerd-proxy",
            audience: "identity.l5d.io",
            inbound: INBOUND,
            outbound: OUTBOUND,
            metrics: (PROXY_ADMIN, "/metrics"),
            // To another address, it would use mutual TLS, for which the programs need proxies of their own.
            control: &[(DESTINATION, 8086), (POLICY, 8090), (IDENTITY, 8080)],
        }
    }

    fn install(&mut self, kubectl: &Kubectl, folder: &Path) -> Result<Vec<Recipe>> {
        let (root, key) = authority()?;
        let issuer = folder.join("key.pem");
        fs::write(folder.join("crt.pem"), &root).doing("write the root")?;
        fs::write(&issuer, key).doing("write the root's key")?;
        self.root = root;
        let charts = copied(&self.programs.charts, folder)?;
        let definitions = chart::render(&charts.join("linkerd-crds"), "linkerd-crds", OWN, &[])?;
        kubectl.apply(&definitions)?;
        let yaml = self.render(&charts, folder)?;
        let chart = Chart::read(kubectl, &yaml)?;
        chart.apply(kubectl, OWN, &[(INJECTOR, "proxy-injector", INJECTION)])?;
        let values = chart.config("linkerd-config", "values")?;
        let kubeconfig = kubectl.kubeconfig().display().to_string();
        let mut recipes = Vec::new();
        for (deployment, container, certificate, ready, argument) in PARTS {
            let own = folder.join(container);
            self.files(&own, &issuer, values)?;
            if let Some(certificate) = certificate {
                let tls = own.join("tls");
                fs::create_dir_all(&tls).doing("make a folder")?;
                for file in ["tls.crt", "tls.key"] {
                    let text = chart::secret(kubectl, OWN, certificate, file)?;
                    fs::write(tls.join(file), text).doing(format!("write {file}"))?;
                }
            }
            let mut container = chart.container(OWN, deployment, container)?;
            container
                .arguments
                .extend(argument.split_whitespace().map(ToOwned::to_owned));
            let program = match container.name.as_str() {
                "policy" => &self.programs.policy,
                _ => &self.programs.controller,
            };
            let environment = [("KUBECONFIG", &kubeconfig), ("HOSTNAME", &container.name)];
            let environment = environment.map(|(name, value)| (name.to_owned(), value.clone()));
            container.environment.extend(environment);
            recipes.push(Recipe {
                program: program.clone(),
                arguments: container.arguments,
                environment: container.environment,
                name: container.name,
                folder: Some(own),
                ready: (ready, "/ready"),
            });
        }
        Ok(recipes)
    }

    fn ready(&mut self, _kubectl: &Kubectl, _folder: &Path) -> Result<()> {
        Ok(())
    }

    fn proxy(&self, pod: &Pod, folder: &Path) -> Result<Recipe> {
        let identity = format!("default.{NAMESPACE}.serviceaccount.{ISSUER}");
        let key = KeyPair::generate().map_err(of_identity)?;
        let mut request = CertificateParams::new(vec![identity.clone()]).map_err(of_identity)?;
        request.distinguished_name = DistinguishedName::new();
        let request = request.serialize_request(&key).map_err(of_identity)?;
        let write = |name: &str, bytes: &[u8]| {
            fs::write(folder.join(name), bytes).doing(format!("write {name}"))
        };
        write("key.p8", key.serialized_der())?;
        write("csr.der", request.der())?;
        let name = &pod.name;
        let variables = [
            ("ADMIN_LISTEN_ADDR", format!("0.0.0.0:{PROXY_ADMIN}")),
            ("CONTROL_LISTEN_ADDR", "0.0.0.0:4190".into()),
            ("CONTROL_STREAM_IDLE_TIMEOUT", "5m".into()),
            ("CONTROL_STREAM_INITIAL_TIMEOUT", "3s".into()),
            ("CONTROL_STREAM_LIFETIME", "1h".into()),
            ("CORES", "1".into()),
            (
                "DESTINATION_CONTEXT",
                format!(r#"{{"ns":"{NAMESPACE}", "nodeName":"simulated-1", "pod":"{name}"}}"#),
            ),
            ("DESTINATION_PROFILE_NETWORKS", NETWORKS.into()),
            ("DESTINATION_PROFILE_SUFFIXES", "svc.cluster.local.".into()),
            ("DESTINATION_SVC_ADDR", format!("127.0.0.1:{DESTINATION}")),
            ("IDENTITY_DIR", folder.display().to_string()),
            ("IDENTITY_LOCAL_NAME", identity),
            ("IDENTITY_SVC_ADDR", format!("127.0.0.1:{IDENTITY}")),
            ("IDENTITY_TOKEN_FILE", token(folder).display().to_string()),
            ("IDENTITY_TRUST_ANCHORS", self.root.clone()),
            ("INBOUND_DEFAULT_POLICY", "all-unauthenticated".into()),
            ("INBOUND_IPS", pod.ip.to_string()),
            ("INBOUND_LISTEN_ADDR", format!("0.0.0.0:{INBOUND}")),
            ("INBOUND_PORTS", APPLICATION.to_string()),
            ("LOG", "warn,linkerd=info".into()),
            ("OUTBOUND_LISTEN_ADDR", format!("127.0.0.1:{OUTBOUND}")),
            ("POLICY_CLUSTER_NETWORKS", NETWORKS.into()),
            ("POLICY_SVC_ADDR", format!("127.0.0.1:{POLICY}")),
            (
                "POLICY_WORKLOAD",
                format!(r#"{{"ns":"{NAMESPACE}", "pod":"{name}"}}"#),
            ),
            ("SHUTDOWN_GRACE_PERIOD", "500ms".into()),
        ];
        let variables = variables.into_iter();
        Ok(Recipe {
            name: name.clone(),
            program: self.programs.proxy.clone(),
            arguments: Vec::new(),
            environment: variables
                .map(|(variable, value)| (format!("LINKERD2_PROXY_{variable}"), value))
                .collect(),
            folder: None,
            ready: (PROXY_ADMIN, "/ready"),
        })
    }

    fn endpoints(&self, metrics: &str) -> Option<u32> {
        let lines = metrics.lines().filter(|line| {
            line.starts_with("outbound_http_balancer_endpoints{")
                && line.contains(r#"backend_name="s0""#)
        });
        // One series for each state.
        let counts: Vec<u32> = lines
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect();
        (!counts.is_empty()).then(|| counts.iter().sum())
    }

    fn webhooks(&self) -> &'static [&'static str] {
        &WEBHOOKS
    }
}

/// Copies the charts, with the templates that both contain: `helm dependency build` would change the checkout.
fn copied(charts: &Path, folder: &Path) -> Result<std::path::PathBuf> {
    let copy = folder.join("charts");
    let copied = |from: &Path, to: &Path| {
        let [from, to] = [from, to].map(|path| path.display().to_string());
        child::output("cp", &["-r", &from, &to]).map(drop)
    };
    copied(charts, &copy)?;
    for chart in ["linkerd-control-plane", "linkerd-crds"] {
        let inner = copy.join(chart).join("charts");
        fs::create_dir_all(&inner).doing("make a folder")?;
        copied(&charts.join("partials"), &inner.join("partials"))?;
    }
    Ok(copy)
}

/// Returns the certificate and the key of a root that issues the certificates of proxies.
fn authority() -> Result<(String, String)> {
    let key = KeyPair::generate().map_err(of_identity)?;
    let mut root = CertificateParams::new(vec![ISSUER.to_owned()]).map_err(of_identity)?;
    root.distinguished_name = DistinguishedName::new();
    root.distinguished_name
        .push(rcgen::DnType::CommonName, ISSUER);
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = root.self_signed(&key).map_err(of_identity)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn of_identity(error: rcgen::Error) -> Error {
    Error::Protocol(format!("identity: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_all_states_are_counted() {
        let linkerd = Linkerd::new(options::Linkerd {
            charts: "charts".into(),
            controller: "controller".into(),
            policy: "policy".into(),
            proxy: "proxy".into(),
        });
        let metrics = "\
outbound_http_balancer_endpoints{backend_name=\"s0\",endpoint_state=\"pending\"} 1
outbound_http_balancer_endpoints{backend_name=\"s0\",endpoint_state=\"ready\"} 4
outbound_http_balancer_endpoints{backend_name=\"s1\",endpoint_state=\"ready\"} 9
";
        assert_eq!(linkerd.endpoints(metrics), Some(5));
        assert_eq!(linkerd.endpoints(""), None);
    }
}
