//! A cluster in which the application runs once for each way.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use maglor_testkit::cluster::{Cluster, Kubectl, gateway_definitions};
use serde_json::{Value, json};

use super::application::{Application, DEPLOYMENTS, Istio};
use super::browser::{Outcome, page};
use super::{Options, Way};
use crate::error::{Error, Result};
use crate::kubernetes::{Programs, rolled_out, until};

/// The Gateway of the sample has this class; in Maglor's namespace it becomes Maglor's.
const CLASS: &str = "gatewayClassName: istio";
/// The port of the sample's Gateway.
const GATEWAY: u16 = 80;
/// Pages in a row that are whole and quick show that no earlier request is left.
const IN_A_ROW: u32 = 5;
const QUICK: Duration = Duration::from_millis(500);

/// See the module's documentation.
pub(super) struct Stage {
    pub(super) cluster: Cluster,
}

impl Stage {
    /// Starts the cluster, the meshes, and the application in each way.
    pub(super) fn start(options: &Options) -> Result<Self> {
        let application = Application::read(options)?;
        let istio = Istio::read(options)?;
        let folder = options.programs.as_deref();
        let maglor = Programs::new(folder, &options.profile, &[])?;
        let cluster = Cluster::start(maglor_testkit::cluster::Options {
            name: "users".into(),
            nodes: 2,
            say: |line| eprintln!("{line}"),
            ..maglor_testkit::cluster::Options::default()
        })?;
        let stage = Self { cluster };
        application.load(&stage.cluster)?;
        stage.kubectl().apply(&application.definitions)?;
        for definition in gateway_definitions()? {
            stage.kubectl().apply(&definition)?;
        }
        for way in options.ways() {
            match (way, &istio) {
                (Way::Plain, _) => {}
                (Way::Maglor, _) => {
                    maglor.load(&stage.cluster)?;
                    let values = ["--set=gateway.enabled=true"];
                    maglor.install(&stage.cluster, &values)?;
                }
                (Way::Istio, Some(istio)) => stage.install(istio)?,
                (Way::Istio, None) => {
                    let remedy = "--istio FOLDER".into();
                    let program = "istiod".into();
                    return Err(Error::Missing { program, remedy });
                }
            }
            stage.deploy(&application, way)?;
        }
        for way in options.ways() {
            stage.serves(way)?;
        }
        Ok(stage)
    }

    fn kubectl(&self) -> &Kubectl {
        self.cluster.kubectl()
    }

    fn install(&self, istio: &Istio) -> Result<()> {
        istio.load(&self.cluster)?;
        // Resources of a kind are refused until its definition is established.
        until("Istio is applied", || {
            Ok(self.kubectl().apply(&istio.install).is_ok())
        })?;
        rolled_out(self.kubectl(), "istio-system", "istiod")
    }

    /// Applies a manifest in the namespace of a way.
    fn apply(&self, way: Way, manifest: &str) -> Result<()> {
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        let arguments = [&apply[..], &["-n", way.namespace()]].concat();
        self.kubectl().with_input(&arguments, manifest)?;
        Ok(())
    }

    /// Deploys the application and its way in.
    fn deploy(&self, application: &Application, way: Way) -> Result<()> {
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": way.namespace(), "labels": way.labels()},
        });
        self.kubectl().apply(&namespace.to_string())?;
        if way != Way::Plain {
            self.apply(way, STRICT)?;
        }
        let deployed = || self.apply(way, &application.services);
        // A webhook may not serve yet.
        until("the application is applied", || Ok(deployed().is_ok()))?;
        match way {
            Way::Plain => {
                let node_port = json!({"spec": {"type": "NodePort"}}).to_string();
                let patch = ["patch", "service", "productpage", "-p", &node_port];
                let arguments = [&patch[..], &["-n", way.namespace()]].concat();
                self.kubectl().run(&arguments)?;
            }
            Way::Maglor => {
                let own = application
                    .gateway
                    .replace(CLASS, "gatewayClassName: maglor");
                self.apply(way, &own)?;
            }
            Way::Istio => self.apply(way, &application.gateway)?,
        }
        Ok(())
    }

    /// Waits until pages are whole.
    fn serves(&self, way: Way) -> Result<()> {
        for name in DEPLOYMENTS {
            rolled_out(self.kubectl(), way.namespace(), name)?;
        }
        until(&format!("{way}: there is a way in"), || {
            Ok(self.entry(way).is_ok())
        })?;
        self.has_settled(way)
    }

    /// Waits until earlier requests have left nothing to do.
    pub(super) fn has_settled(&self, way: Way) -> Result<()> {
        let entry = self.entry(way)?;
        let mut in_a_row = 0;
        until(&format!("{way}: pages are whole and quick"), || {
            let (outcome, time) = page(&self.cluster, entry)?;
            in_a_row = match outcome == Outcome::Whole && time < QUICK {
                true => in_a_row + 1,
                false => 0,
            };
            Ok(in_a_row >= IN_A_ROW)
        })
    }

    /// Returns the address that users connect to: a node's, or the gateway's.
    pub(super) fn entry(&self, way: Way) -> Result<SocketAddr> {
        let missing = || Error::protocol(format!("{way}: no way in"));
        let get = |arguments: &[&str]| {
            let namespace = ["-n", way.namespace()];
            self.kubectl().json(&[arguments, &namespace].concat())
        };
        let found = match way {
            Way::Plain => {
                let service = get(&["get", "service", "productpage"])?;
                let port = service["spec"]["ports"][0]["nodePort"].as_u64();
                let nodes = get(&["get", "nodes"])?;
                let addresses = nodes["items"][0]["status"]["addresses"].as_array().cloned();
                let mut addresses = addresses.into_iter().flatten();
                let node = addresses.find(|one| one["type"] == "InternalIP");
                let node = node.as_ref().and_then(|one| address(&one["address"]));
                node.zip(port.and_then(|port| u16::try_from(port).ok()))
            }
            Way::Maglor | Way::Istio => {
                let label = "gateway.networking.k8s.io/gateway-name=bookinfo-gateway";
                let pods = get(&["get", "pods", "-l", label])?;
                let pod = &pods["items"][0]["status"]["podIP"];
                address(pod).zip(Some(GATEWAY))
            }
        };
        found.map(SocketAddr::from).ok_or_else(missing)
    }
}

/// Mutual TLS for all calls of a namespace, as the paper has it.
const STRICT: &str = "
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default}
spec: {mtls: {mode: STRICT}}
";

fn address(text: &Value) -> Option<Ipv4Addr> {
    text.as_str()?.parse().ok()
}
