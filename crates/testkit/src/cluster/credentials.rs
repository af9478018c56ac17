//! Credentials for the API server: a certificate authority with the server's certificate, and the tokens of users.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::cluster::addresses::{API_SERVICE, CONTROL};
use crate::cluster::error::{At as _, ClusterError};

/// A user with a token.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    group: &'static str,
    token: String,
}

impl User {
    /// Creates the administrator.
    pub(crate) fn admin() -> Result<Self, ClusterError> {
        Self::new("admin".into(), "system:masters")
    }

    /// Creates the user of a control plane component, by its name in Kubernetes' roles.
    pub(crate) fn component(name: &str) -> Result<Self, ClusterError> {
        Self::new(format!("system:{name}"), "")
    }

    /// Creates the user of a node's kubelet.
    pub(crate) fn node(name: &str) -> Result<Self, ClusterError> {
        Self::new(format!("system:node:{name}"), "system:nodes")
    }

    fn new(name: String, group: &'static str) -> Result<Self, ClusterError> {
        let path = Path::new("/dev/urandom");
        let mut random = [0; 16];
        let mut file = fs::File::open(path).at(path)?;
        std::io::Read::read_exact(&mut file, &mut random).at(path)?;
        let mut token = String::new();
        for byte in random {
            // Writing to a string cannot fail.
            let _ = write!(token, "{byte:02x}");
        }
        Ok(Self { name, group, token })
    }

    /// Returns a kubeconfig for the user. `server` is the URL of the API server, and `authority` the file with the
    /// certificate of its authority.
    pub(crate) fn kubeconfig(&self, server: &str, authority: &str) -> String {
        let token = &self.token;
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: maglor\n  cluster: {{server: '{server}', certificate-authority: '{authority}'}}\n\
             users:\n\
             - name: user\n  user: {{token: '{token}'}}\n\
             contexts:\n\
             - name: maglor\n  context: {{cluster: maglor, user: user}}\n\
             current-context: maglor\n"
        )
    }
}

/// Returns the lines of the API server's token file.
pub(crate) fn token_file<'a>(users: impl IntoIterator<Item = &'a User>) -> String {
    let mut lines = String::new();
    for (uid, user) in users.into_iter().enumerate() {
        let User { name, group, token } = user;
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{token},{name},{uid},\"{group}\"");
    }
    lines
}

/// The certificates and keys of the API server, as PEM.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) authority: String,
    pub(crate) authority_key: String,
    pub(crate) server: String,
    pub(crate) server_key: String,
    /// The key that signs the tokens of service accounts.
    pub(crate) accounts_key: String,
    /// The key that verifies the tokens of service accounts.
    pub(crate) accounts_public_key: String,
    /// The authority that signs the certificate by which the API server identifies itself to the servers of aggregated
    /// APIs, and no others.
    pub(crate) front_authority: String,
    pub(crate) front: String,
    pub(crate) front_key: String,
}

/// The name in the certificate for the servers of aggregated APIs.
pub(crate) const FRONT: &str = "front-proxy-client";

impl Certificates {
    /// Creates an authority, and a certificate for all names of the API server.
    pub(crate) fn new() -> Result<Self, ClusterError> {
        let failed = |subject: &str| {
            let subject = subject.to_owned();
            move |source| ClusterError::Certificate { subject, source }
        };
        let made = authority("maglor-cluster").map_err(failed("the authority"))?;
        let (authority_pem, issuer) = made;
        let authority_key = issuer.key().serialize_pem();
        let made = authority("maglor-cluster-front-proxy").map_err(failed("the front proxy"))?;
        let (front_authority, front_issuer) = made;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, FRONT);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let front_key = KeyPair::generate().map_err(failed("the front proxy"))?;
        let front = params
            .signed_by(&front_key, &front_issuer)
            .map_err(failed("the front proxy"))?;

        let names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "localhost",
        ];
        let addresses = [Ipv4Addr::LOCALHOST, CONTROL, API_SERVICE].map(|ip| ip.to_string());
        let names = names.into_iter().map(str::to_owned).chain(addresses);
        let mut params =
            CertificateParams::new(names.collect::<Vec<_>>()).map_err(failed("the API server"))?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        let server_key = KeyPair::generate().map_err(failed("the API server"))?;
        let server = params
            .signed_by(&server_key, &issuer)
            .map_err(failed("the API server"))?;
        let accounts = KeyPair::generate().map_err(failed("service accounts"))?;
        Ok(Self {
            authority: authority_pem,
            authority_key,
            server: server.pem(),
            server_key: server_key.serialize_pem(),
            accounts_key: accounts.serialize_pem(),
            accounts_public_key: accounts.public_key_pem(),
            front_authority,
            front: front.pem(),
            front_key: front_key.serialize_pem(),
        })
    }
}

/// Creates an authority; returns its certificate as PEM, and its issuer.
fn authority(name: &str) -> Result<(String, Issuer<'static, KeyPair>), rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok((certificate, Issuer::new(params, key)))
}

/// Creates a self-signed certificate, for servers that need one and whose clients do not verify it; returns the
/// certificate and its key as PEM.
pub(crate) fn self_signed(name: &str) -> Result<(String, String), ClusterError> {
    let certified = rcgen::generate_simple_self_signed([name.to_owned()]);
    let certified = certified.map_err(|source| ClusterError::Certificate {
        subject: name.to_owned(),
        source,
    })?;
    Ok((certified.cert.pem(), certified.signing_key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_stand_in_both_files() {
        let users = [User::admin().unwrap(), User::node("node-1").unwrap()];
        assert_ne!(users[0].token, users[1].token);
        let file = token_file(&users);
        let lines: Vec<_> = file.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with(",system:node:node-1,1,\"system:nodes\""));
        let kubeconfig = users[1].kubeconfig("https://127.0.0.1:1", "/ca.pem");
        assert!(kubeconfig.contains(&users[1].token));
    }
}
