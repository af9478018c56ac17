//! Identities: the harness's own authority, in the Secret where the controller expects one.

use std::sync::Arc;
use std::time::SystemTime;

use maglor_identity::tls::{Client, Expected};
use maglor_identity::{Authority, Identity, LeafRequest, Live, SpiffeId, TrustDomain};
use maglor_testkit::cluster::Kubectl;
use serde_json::json;
use tokio_rustls::rustls::ClientConfig;

use crate::error::{Error, Result};

/// The controller's namespace and account, as in the chart.
pub(super) const NAMESPACE: &str = "maglor";
const ACCOUNT: &str = "maglor-controller";

/// The authority that the mesh trusts.
#[derive(Debug)]
pub(super) struct Members {
    authority: Authority,
    domain: TrustDomain,
}

impl Members {
    /// Creates an authority for the controller.
    pub(super) fn found(kubectl: &Kubectl) -> Result<Self> {
        let domain: TrustDomain = "cluster.local".parse().map_err(of_identity)?;
        let authority = Authority::create(&domain, SystemTime::now()).map_err(of_identity)?;
        let root = authority.certificate_pem();
        let secret = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "maglor-ca", "namespace": NAMESPACE},
                "stringData": {
                    "ca.crt": root,
                    "tls.crt": root,
                    "tls.key": authority.private_key_pem().as_str(),
                },
            },
        ]});
        kubectl.apply(&secret.to_string())?;
        Ok(Self { authority, domain })
    }

    /// Returns the TLS configuration of a sidecar of the namespace `scale` for the controller. Each
    /// one has a separate key.
    pub(super) fn client(&self) -> Result<Arc<ClientConfig>> {
        let id = |namespace, account| {
            SpiffeId::workload(&self.domain, namespace, account).map_err(of_identity)
        };
        let request = LeafRequest::new(id("scale", "default")?);
        let issued = self.authority.issue(&request, SystemTime::now());
        let issued = issued.map_err(of_identity)?;
        let key = issued.private_key_pem.unwrap_or_default();
        let identity = Identity::from_pem(issued.certificate_pem.as_bytes(), key.as_bytes());
        let bundle = self.authority.bundle().map_err(of_identity)?;
        let live = Live::new(identity.map_err(of_identity)?, bundle).map_err(of_identity)?;
        let controller = Expected::OneOf(vec![id(NAMESPACE, ACCOUNT)?]);
        let client = Client::new(&live, controller, &[b"h2"]).map_err(of_identity)?;
        Ok(client.config())
    }
}

fn of_identity(error: impl std::error::Error) -> Error {
    Error::Protocol(format!("identity: {error}"))
}
