//! `inbound` and `outbound`: a sidecar's two listeners without filter chains.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Discovery, LoadReports, MeshMode, NotationError, Pairs, Retry, Short, Shorthand, TimeSpan,
};

/// Connections of other hosts to the application on this one, redirected by `maglor-proxy init`. HTTP
/// gets routes, limits and metrics; everything else passes as bytes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Inbound {
    /// Where the application listens: `IP`, which keeps the port that the client called, `IP:PORT`,
    /// or a Unix socket, `unix:/PATH`.
    /// Default: the loopback address of the family that the client called, with its port.
    pub application: Option<String>,
    /// What is spoken on the application's ports: port → protocol. Others: `protocol`.
    pub ports: Option<Pairs<Short<ApplicationPort>>>,
    /// What is spoken on ports that `ports` does not name.
    #[schemars(extend("default" = "auto"))]
    pub protocol: Option<ApplicationProtocol>,
    /// The name, `NAMESPACE/POD`, under which the control plane has what this listener does. What it says
    /// holds in place of `ports` and of the listener's `tls` and `authorization`, which hold until then.
    /// Absent: nobody is asked.
    pub discovery: Option<String>,
}

/// One of the application's ports; a text is its protocol.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicationPort {
    /// What is spoken there.
    #[schemars(extend("default" = "auto"))]
    pub protocol: Option<ApplicationProtocol>,
    /// HTTP: tell balancers how many requests are in flight there. Absent: nobody is told.
    pub load_reports: Option<LoadReports>,
    /// Who is let in there: members of the mesh only, or plain text, too. Absent: as the listener's `tls`
    /// says, which has to be one of these.
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

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplicationProtocol {
    /// Told from the first bytes: HTTP/1, HTTP/2, or anything else, which passes as bytes. A client
    /// that waits for the server passes after `detection_timeout`.
    Auto,
    /// HTTP/1.1 or, by its preface, HTTP/2.
    Http,
    /// HTTP/2 only, gRPC for example.
    Http2,
    /// Bytes, without a look at them: for protocols in which the server speaks first.
    Tcp,
    /// TLS that the proxy does not terminate; bytes to it.
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

/// Connections of the application to other hosts, redirected by `maglor-proxy init`: known services to
/// their clusters, by address or by name, and the rest where it was going.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Outbound {
    /// What is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// Ask the control plane for addresses and hosts that are not known. Absent: nobody is asked.
    pub discovery: Option<Discovery>,
    /// What becomes of connections to nothing that is known.
    #[schemars(extend("default" = "pass"))]
    pub unknown: Option<Unknown>,
}

/// A service that the application calls. A connection to one of its addresses is the service's,
/// whatever it says; HTTP to other addresses is the service's if it asks for one of its hosts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["name", "cluster"]))]
pub struct Service {
    /// Unique in the listener; name of its routes in metrics.
    pub name: Option<String>,
    /// `IP:PORT` under which it is called, such as the address of a Kubernetes Service. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Names under which it is called: `Host` of HTTP, SNI of `protocol: tls`. Default: its `name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Name of the cluster that serves it.
    pub cluster: Option<String>,
    /// HTTP: when a failed try is repeated; a text is the conditions. Absent: with all of its defaults.
    pub retry: Option<Short<Retry>>,
    /// HTTP: time from the end of a request to the end of its response, 0s-30d. 0: no limit.
    #[schemars(extend("default" = "0s"))]
    pub timeout: Option<TimeSpan>,
    /// What is spoken to its addresses.
    #[schemars(extend("default" = "auto"))]
    pub protocol: Option<ApplicationProtocol>,
}

/// What becomes of connections to nothing that is known.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// They go where they were going.
    Pass,
    /// They are closed; HTTP is answered with 404.
    Refuse,
}
