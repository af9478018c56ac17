//! `inbound` and `outbound`: a sidecar's two listeners without filter chains.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{
    Discovery, LoadReports, MeshMode, NotationError, Pairs, Retry, Short, Shorthand, TimeSpan,
};

/// Connections from other hosts to the local application, redirected by `maglor-proxy init`. HTTP gets routes, limits
/// and metrics; everything else is forwarded as TCP.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Inbound {
    /// Address of the application: `IP`, which keeps the destination port, `IP:PORT`,
    /// or a Unix socket, `unix:/PATH`.
    /// Default: the loopback address of the same family, with the destination port.
    pub application: Option<String>,
    /// Protocols of the application's ports: port → protocol. Ports that are not listed have `protocol`.
    pub ports: Option<Pairs<Short<ApplicationPort>>>,
    /// Protocol of ports that are not in `ports`.
    #[schemars(extend("default" = "auto"))]
    pub protocol: Option<ApplicationProtocol>,
    /// Pod of this proxy, `NAMESPACE/POD`, for which the control plane configures this listener. Its configuration
    /// replaces `ports` and the listener's `tls` and `authorization`, which apply until it arrives. Absent: disabled.
    pub discovery: Option<String>,
}

/// One of the application's ports; a string is its protocol.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicationPort {
    /// Protocol of the port.
    #[schemars(extend("default" = "auto"))]
    pub protocol: Option<ApplicationProtocol>,
    /// Load reports to balancers, for HTTP. Absent: disabled.
    pub load_reports: Option<LoadReports>,
    /// Mutual TLS mode of the port: only workloads of the mesh (`strict`), or also plain text (`permissive`). It
    /// requires `tls: mesh` of the listener. Absent: the mode of the listener's `tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<MeshMode>,
}

impl Shorthand for ApplicationPort {
    const TEXT: &'static str = "a protocol: `auto`, `http`, `http2`, `tcp` or `tls`";

    fn from_text(text: &str) -> Result<Self, NotationError> {
        let known = ApplicationProtocol::ALL;
        let found = known.iter().find(|protocol| protocol.as_str() == text);
        let protocol = *found.ok_or_else(|| {
            NotationError::new(format!("`{text}` is not a protocol; write {}", Self::TEXT))
        })?;
        Ok(Self {
            protocol: Some(protocol),
            ..Self::default()
        })
    }

    fn as_text(&self) -> Option<&str> {
        let alone = self.load_reports.is_none() && self.tls.is_none();
        let alone = self.protocol.filter(|_| alone);
        alone.map(ApplicationProtocol::as_str)
    }
}

/// Protocol of a connection.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplicationProtocol {
    /// Detected from the first bytes: HTTP/1, HTTP/2, or anything else, which is forwarded as TCP. A client that
    /// waits for the server is forwarded as TCP after `detection_timeout`.
    Auto,
    /// HTTP/1.1, or HTTP/2 if the connection starts with its preface.
    Http,
    /// HTTP/2 only, for example gRPC.
    Http2,
    /// TCP without detection: for protocols in which the server sends first.
    Tcp,
    /// TLS passthrough.
    Tls,
}

impl ApplicationProtocol {
    const ALL: [Self; 5] = [Self::Auto, Self::Http, Self::Http2, Self::Tcp, Self::Tls];

    fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }
}

/// Connections of the application to other hosts, redirected by `maglor-proxy init`. Connections to known services, by
/// address or name, go to their clusters, and all others to their original destination.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Outbound {
    /// Known services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// On-demand discovery of unknown addresses and hosts. Absent: disabled.
    pub discovery: Option<Discovery>,
    /// Handling of connections to unknown destinations.
    #[schemars(extend("default" = "pass"))]
    pub unknown: Option<Unknown>,
}

/// A service that the application calls. It gets all connections to its addresses, and HTTP requests to other addresses
/// whose `Host` is one of its `hosts`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name", "cluster"]))]
pub struct Service {
    /// Name, unique in the listener; also the name of the service's routes in metrics.
    pub name: Option<String>,
    /// Addresses of the service, `IP:PORT`, such as that of a Kubernetes Service. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Host names of the service: `Host` of HTTP requests, SNI with `protocol: tls`. Default: `name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Name of the service's cluster.
    pub cluster: Option<String>,
    /// Retries of failed HTTP attempts; a string is a condition. Absent: defaults.
    pub retry: Option<Short<Retry>>,
    /// Timeout of HTTP requests, from the end of a request to the end of its response, 0s-30d; 0: none.
    #[schemars(extend("default" = "0s"))]
    pub timeout: Option<TimeSpan>,
    /// Protocol of the service's addresses.
    #[schemars(extend("default" = "auto"))]
    pub protocol: Option<ApplicationProtocol>,
}

/// Handling of connections to unknown destinations.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// Forward them to their original destination.
    Pass,
    /// Close them; HTTP requests get 404.
    Refuse,
}
