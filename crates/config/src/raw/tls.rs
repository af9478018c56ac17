//! TLS blocks.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{NotationError, Shorthand};

/// A certificate chain and its key.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["certificate", "private_key"]))]
pub struct CertificateFiles {
    /// PEM file of the certificate chain: the leaf certificate first, then intermediates.
    pub certificate: Option<String>,
    /// PEM file of the private key: PKCS#8, PKCS#1 or SEC1.
    pub private_key: Option<String>,
}

/// The minimum TLS version.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum TlsVersion {
    /// TLS 1.2 and 1.3.
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3 only.
    #[serde(rename = "1.3")]
    V13,
}

/// Without quotes, editors treat `1.3` as a number.
impl JsonSchema for TlsVersion {
    fn schema_name() -> Cow<'static, str> {
        "TlsVersion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The minimum TLS version.",
            "enum": ["1.2", "1.3", 1.2, 1.3],
        })
    }
}

/// Identity of the proxy inside the mesh, from files or, with `token_file`, from certificates that the control plane
/// issues. Files are reloaded when they change, without closing connections.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["trust_bundle"]))]
pub struct Identity {
    /// PEM file: the certificate first, whose only URI is a SPIFFE ID, then intermediates.
    pub certificate: Option<String>,
    /// PEM file of the private key: PKCS#8, PKCS#1 or SEC1.
    pub private_key: Option<String>,
    /// PEM file of the root certificates of the trust domain.
    pub trust_bundle: Option<String>,
    /// File of a token for the control plane, instead of `certificate` and `private_key`. The proxy generates a key in
    /// memory, and the control plane issues a certificate for the token's workload, which is renewed at 70 % of its
    /// lifetime. The token file is read for each certificate. The cluster of the `control_plane` must have
    /// `tls: {mesh: {identities: [SPIFFE-ID]}}`. The control plane also distributes new roots.
    pub token_file: Option<String>,
}

/// Clients that mutual TLS accepts.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MeshMode {
    /// Workloads of the mesh, and clients in plain text.
    Permissive,
    /// Only workloads of the mesh.
    Strict,
}

/// Workloads of the mesh that a cluster expects as endpoints.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MeshPeers {
    /// SPIFFE IDs, one of which each endpoint must have. Default: any ID of the trust domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<String>,
}

/// The short form of mutual TLS inside the mesh, with defaults.
const MESH: &str = "mesh";

fn not_mesh(text: &str) -> NotationError {
    NotationError::new(format!(
        "`{}` is not a kind of TLS; write `tls: mesh`, or a mapping",
        crate::yaml::short(text)
    ))
}

impl Shorthand for DownstreamTls {
    const TEXT: &'static str = "`mesh`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        match text {
            MESH => Ok(Self {
                mesh: Some(MeshMode::Strict),
                ..Self::default()
            }),
            _ => Err(not_mesh(text)),
        }
    }

    fn as_text(&self) -> Option<&str> {
        let strict = matches!(self.mesh, Some(MeshMode::Strict));
        let alone = self.alpn.is_none() && self.delegates.is_empty();
        (strict && self.besides_mesh().is_empty() && alone).then_some(MESH)
    }
}

impl DownstreamTls {
    /// Returns the fields that are set but have no effect with `mesh`.
    pub(crate) fn besides_mesh(&self) -> Vec<&'static str> {
        present(&[
            ("certificate", self.certificate.is_some()),
            ("private_key", self.private_key.is_some()),
            ("certificates", !self.certificates.is_empty()),
            ("client_ca", self.client_ca.is_some()),
            (
                "require_client_certificate",
                self.require_client_certificate.is_some(),
            ),
            ("min_version", self.min_version.is_some()),
        ])
    }
}

impl Shorthand for UpstreamTls {
    const TEXT: &'static str = "`mesh`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        match text {
            MESH => Ok(Self {
                mesh: Some(MeshPeers::default()),
                ..Self::default()
            }),
            _ => Err(not_mesh(text)),
        }
    }

    fn as_text(&self) -> Option<&str> {
        let peers = self.mesh.as_ref()?;
        (peers.identities.is_empty() && self.besides_mesh().is_empty()).then_some(MESH)
    }
}

impl UpstreamTls {
    /// Returns the fields that are set but have no effect with `mesh`.
    pub(crate) fn besides_mesh(&self) -> Vec<&'static str> {
        present(&[
            ("server_name", self.server_name.is_some()),
            ("ca", self.ca.is_some()),
            ("certificate", self.certificate.is_some()),
            ("private_key", self.private_key.is_some()),
            ("insecure_skip_verify", self.insecure_skip_verify.is_some()),
            ("min_version", self.min_version.is_some()),
        ])
    }
}

fn present(fields: &[(&'static str, bool)]) -> Vec<&'static str> {
    let present = fields.iter().filter(|(_, present)| *present);
    present.map(|(name, _)| *name).collect()
}

/// TLS termination; the string `mesh` is short for `{mesh: strict}`. Relative file names are relative
/// to the working directory.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DownstreamTls {
    /// Mutual TLS between workloads of the mesh, by the proxy's `identity`, instead of certificates.
    pub mesh: Option<MeshMode>,
    /// With `mesh`: SPIFFE IDs of proxies in front of this one that are trusted to name the client of a request
    /// (`x-maglor-client`); authorization rules then apply to that client. TCP connections do not name a client: with
    /// `authorization`, TCP connections from these proxies are rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegates: Vec<String>,
    /// PEM file of the only certificate chain; short for a list `certificates` of one.
    pub certificate: Option<String>,
    /// PEM file of the key of `certificate`.
    pub private_key: Option<String>,
    /// Certificates, chosen by the client's server name; the first is the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<CertificateFiles>,
    /// PEM file of the root certificates for client certificates. Absent: client certificates are not requested.
    pub client_ca: Option<String>,
    /// Whether to reject clients without a certificate. Default: true with `client_ca`.
    pub require_client_certificate: Option<bool>,
    /// ALPN protocols in order of preference. Default: `[h2, http/1.1]`, reduced to what `http.protocol` allows; none
    /// for `tcp`. With `mesh` and `http.protocol: auto`: `[maglor/1, h2, http/1.1]`, where `maglor/1` is the [mesh's
    /// own transport](transport.md).
    pub alpn: Option<Vec<String>>,
    /// Minimum TLS version.
    #[schemars(extend("default" = "1.2"))]
    pub min_version: Option<TlsVersion>,
}

/// TLS to the endpoints of a cluster; `tls: {}` verifies against the system's roots, the string `mesh` is short for
/// `{mesh: {}}`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamTls {
    /// Mutual TLS between workloads of the mesh, by the proxy's `identity`: endpoints are verified by SPIFFE ID, not
    /// by name.
    pub mesh: Option<MeshPeers>,
    /// Name for SNI and for verification. Default: the endpoint's DNS name or address.
    pub server_name: Option<String>,
    /// PEM file of the root certificates. Default: the system's roots.
    pub ca: Option<String>,
    /// PEM file of the client certificate, for mutual TLS.
    pub certificate: Option<String>,
    /// PEM file of the key of `certificate`.
    pub private_key: Option<String>,
    /// Whether to accept any server certificate. Only for tests: the server can be impersonated.
    #[schemars(extend("default" = false))]
    pub insecure_skip_verify: Option<bool>,
    /// Minimum TLS version.
    #[schemars(extend("default" = "1.2"))]
    pub min_version: Option<TlsVersion>,
}
