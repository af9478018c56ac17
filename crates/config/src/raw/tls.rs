//! TLS blocks.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A certificate chain and its key.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["certificate", "private_key"]))]
pub struct CertificateFiles {
    /// PEM file: the leaf certificate first, then intermediates.
    pub certificate: Option<String>,
    /// PEM file: PKCS#8, PKCS#1 or SEC1.
    pub private_key: Option<String>,
}

/// The oldest TLS version that is spoken.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub enum TlsVersion {
    /// TLS 1.2 and 1.3.
    #[serde(rename = "1.2")]
    V12,
    /// Only TLS 1.3.
    #[serde(rename = "1.3")]
    V13,
}

/// Without quotes, `1.3` is a number for an editor.
impl JsonSchema for TlsVersion {
    fn schema_name() -> Cow<'static, str> {
        "TlsVersion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The oldest TLS version that is spoken.",
            "enum": ["1.2", "1.3", 1.2, 1.3],
        })
    }
}

/// TLS termination. Relative file names are relative to the working directory.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DownstreamTls {
    /// PEM file of the only certificate chain; short for a list `certificates` of one.
    pub certificate: Option<String>,
    /// PEM file of the key of `certificate`.
    pub private_key: Option<String>,
    /// Certificates, chosen by the client's server name; the first is the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<CertificateFiles>,
    /// PEM file of the roots that client certificates must chain to. Absent: clients are not asked
    /// for a certificate.
    pub client_ca: Option<String>,
    /// Refuse clients without certificate. Default: true where `client_ca` is given.
    pub require_client_certificate: Option<bool>,
    /// ALPN protocols in order of preference. Default: `[h2, http/1.1]`, or what `http.protocol`
    /// allows of it; none for `tcp`.
    pub alpn: Option<Vec<String>>,
    /// Oldest TLS version accepted.
    #[schemars(extend("default" = "1.2"))]
    pub min_version: Option<TlsVersion>,
}

/// TLS towards the endpoints of a cluster; `tls: {}` verifies against the system's roots.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamTls {
    /// Name for SNI and for verification. Default: the endpoint's DNS name or address.
    pub server_name: Option<String>,
    /// PEM file of the roots. Default: the system's roots.
    pub ca: Option<String>,
    /// PEM file of the client certificate, for mutual TLS.
    pub certificate: Option<String>,
    /// PEM file of the key of `certificate`.
    pub private_key: Option<String>,
    /// Accept any server certificate. Only for tests: anybody can pose as the server.
    #[schemars(extend("default" = false))]
    pub insecure_skip_verify: Option<bool>,
    /// Oldest TLS version spoken.
    #[schemars(extend("default" = "1.2"))]
    pub min_version: Option<TlsVersion>,
}
