//! Authenticates the API server's aggregation layer by its client certificate: the certificate authority and the
//! allowed names are in the ConfigMap `extension-apiserver-authentication` of `kube-system` (Kubernetes, "Configure
//! the Aggregation Layer"). The handshake of any other client fails.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use maglor_identity::tls::StrictClients;
use maglor_identity::x509;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio::sync::watch;

use crate::https::Serving;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// Keys of the ConfigMap: the certificate authority as PEM, and a list of allowed common names. An empty list allows
/// any name.
const AUTHORITY: &str = "requestheader-client-ca-file";
const NAMES: &str = "requestheader-allowed-names";
/// Pause after a failed watch.
const REST: Duration = Duration::from_secs(2);

/// Reason why the ConfigMap does not identify the API server.
#[derive(Debug, thiserror::Error)]
enum FrontError {
    #[error("{0} is missing: the API server has no aggregation layer")]
    Key(&'static str),
    #[error("{NAMES} is not a list of names: {0}")]
    Names(#[from] serde_json::Error),
    #[error("{AUTHORITY}: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("invalid {AUTHORITY}: {0}")]
    Root(#[from] rustls::Error),
    #[error("invalid {AUTHORITY}: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Keeps `serving` up to date when the certificate or the ConfigMap changes; never returns.
pub(super) async fn follow(
    client: Client,
    mut certificate: Serving,
    serving: watch::Sender<Option<Arc<ServerConfig>>>,
) {
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let mut changes = pin!(watch_object(api, NAME));
    let mut front: Option<Arc<Front>> = None;
    loop {
        tokio::select! {
            Some(event) = changes.next() => match event {
                Ok(Some(map)) => front = known(&map).or(front),
                // After a deletion, the last known content remains valid.
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "watch of ConfigMap {NAMESPACE}/{NAME} failed; retrying");
                    tokio::time::sleep(REST).await;
                }
            },
            Ok(()) = certificate.changed() => {}
            else => return,
        }
        let own = certificate.borrow_and_update().clone();
        if let (Some(front), Some(own)) = (&front, own) {
            serve_as(front, &own, &serving);
        }
    }
}

fn known(map: &ConfigMap) -> Option<Arc<Front>> {
    match Front::of(map) {
        Ok(front) => Some(Arc::new(front)),
        Err(error) => {
            tracing::warn!(%error, "cannot read the client CA of the API server from ConfigMap {NAMESPACE}/{NAME}; keeping the last valid one");
            None
        }
    }
}

fn serve_as(
    front: &Arc<Front>,
    own: &ServerConfig,
    serving: &watch::Sender<Option<Arc<ServerConfig>>>,
) {
    match config_of(front, own) {
        Ok(config) => drop(serving.send_replace(Some(Arc::new(config)))),
        Err(error) => {
            tracing::warn!(%error, "cannot apply the TLS configuration of the external metrics server; keeping the last valid one");
        }
    }
}

/// Returns the TLS configuration of another server, changed to accept only the API server as a client.
fn config_of(front: &Arc<Front>, own: &ServerConfig) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let verifier = Arc::clone(front) as Arc<dyn ClientCertVerifier>;
    let mut config = config
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(&own.cert_resolver));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Verifies the client certificate of the API server.
#[derive(Debug)]
struct Front {
    signed: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

impl Front {
    fn of(map: &ConfigMap) -> Result<Self, FrontError> {
        let value = |key| map.data.as_ref().and_then(|data| data.get(key));
        let authority = value(AUTHORITY).ok_or(FrontError::Key(AUTHORITY))?;
        let names = match value(NAMES) {
            Some(names) => serde_json::from_str(names)?,
            None => Vec::new(),
        };
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(root?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let signed =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        let signed = Arc::new(StrictClients(signed));
        Ok(Self { signed, names })
    }
}

impl ClientCertVerifier for Front {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.signed.verify_client_cert(leaf, intermediates, now)?;
        let name = x509::parse(leaf).and_then(|leaf| leaf.common_name);
        let allowed = name.is_some_and(|name| self.names.contains(&name));
        match self.names.is_empty() || allowed {
            true => Ok(verified),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };

    use super::*;

    fn issuer(name: &str) -> (String, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        (pem, Issuer::new(params, key))
    }

    fn leaf(issuer: &Issuer<'_, KeyPair>, name: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, issuer).unwrap().into()
    }

    fn front(authority: &str, names: Option<&str>) -> Result<Front, FrontError> {
        let mut data = vec![(AUTHORITY.to_owned(), authority.to_owned())];
        data.extend(names.map(|names| (NAMES.to_owned(), names.to_owned())));
        Front::of(&ConfigMap {
            data: Some(data.into_iter().collect()),
            ..ConfigMap::default()
        })
    }

    #[test]
    fn only_the_api_server_is_let_in() {
        let (authority, signs) = issuer("front proxy");
        let (_, other) = issuer("front proxy");
        let passes = |front: &Front, leaf: &CertificateDer<'_>| {
            front.verify_client_cert(leaf, &[], UnixTime::now()).is_ok()
        };
        let named = front(&authority, Some("[\"front-proxy-client\"]")).unwrap();
        assert!(named.client_auth_mandatory());
        assert!(passes(&named, &leaf(&signs, "front-proxy-client")));
        assert!(!passes(&named, &leaf(&signs, "outsider")), "another name");
        assert!(
            !passes(&named, &leaf(&other, "front-proxy-client")),
            "another authority"
        );
        for any in [None, Some("[]")] {
            let any = front(&authority, any).unwrap();
            assert!(passes(&any, &leaf(&signs, "outsider")));
            assert!(!passes(&any, &leaf(&other, "outsider")));
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = Front::of(&ConfigMap::default()).unwrap_err().to_string();
        assert!(none.contains(AUTHORITY), "{none}");
        let (authority, _) = issuer("front proxy");
        let names = front(&authority, Some("all")).unwrap_err().to_string();
        assert!(names.contains(NAMES), "{names}");
        assert!(front("", None).is_err(), "no signer");
    }
}
