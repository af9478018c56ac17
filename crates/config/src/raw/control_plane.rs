//! `control_plane` and `discovery`: what is not in the file, and where it comes from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TimeSpan;

/// Who tells the proxy of services that the file does not know (Envoy's discovery protocol, delta ADS;
/// see docs/xds.md). Chains with `discovery` ask it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["cluster", "node"]))]
pub struct ControlPlane {
    /// Name of the cluster of its servers, which says how they are reached: addresses, TLS. HTTP/2 is
    /// spoken to them whatever its `protocol`.
    pub cluster: Option<String>,
    /// Who asks.
    pub node: Option<Node>,
    /// Folder where the last good resources are kept, and the identity where the control plane certifies
    /// it: a proxy that starts while its control plane is away begins with them, and says so. Private keys
    /// are readable by their owner only. Absent: nothing is kept.
    pub cache_dir: Option<String>,
    /// The pod that this proxy is, `NAMESPACE/POD`, of a Gateway or of a group of Services: its listeners, beside
    /// those of the file, are what the control plane says, certificates included, which are kept in `cache_dir`.
    /// Absent: the file's are all.
    pub gateway: Option<String>,
}

/// What a proxy calls itself to its control plane.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["id"]))]
pub struct Node {
    /// Unique in the mesh: `NAMESPACE/POD`. A control plane that knows proxies by certificates believes
    /// the namespace of the certificate only.
    pub id: Option<String>,
    /// The group of proxies that it is one of. Default: none.
    pub cluster: Option<String>,
}

/// Hosts that no virtual host has are asked for at the control plane when they are first called, and so
/// is where redirected connections were going. A request or connection waits for the answer.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Discovery {
    /// Ask for this one, `NAME:PORT`, whatever host is called: requests go to one service, as through a
    /// reverse proxy. Absent: for the host.
    pub host: Option<String>,
    /// With `host`: a request goes by the virtual host of its own host, as in a table of the file. Otherwise
    /// one virtual host, that of `host`, is for all requests. At such an edge a client's HTTP/2 says nothing
    /// of what servers speak: where a cluster follows the client's version, only gRPC goes on by HTTP/2.
    #[schemars(extend("default" = false))]
    pub by_virtual_host: Option<bool>,
    /// The namespace that a host of one label is in: `reviews` is `reviews.NAMESPACE.svc.DOMAIN`.
    #[schemars(extend("default" = "default"))]
    pub namespace: Option<String>,
    /// The domain of the cluster.
    #[schemars(extend("default" = "cluster.local"))]
    pub domain: Option<String>,
    /// How long a request or connection waits for the answer, 1ms-1m; then what was redirected is taken
    /// for unknown, and other requests get 503.
    #[schemars(extend("default" = "5s"))]
    pub timeout: Option<TimeSpan>,
    /// A host or address that was not called for so long is not followed any more, 1s-24h.
    #[schemars(extend("default" = "10m"))]
    pub idle_timeout: Option<TimeSpan>,
}
