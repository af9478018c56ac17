//! `control_plane` and `discovery`: resources from a control plane.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TimeSpan;

/// Control plane for services that are not in the file (Envoy's discovery protocol, delta ADS; see docs/xds.md).
/// Chains with `discovery` use it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["cluster", "node"]))]
pub struct ControlPlane {
    /// Name of the cluster of its servers, with their addresses and TLS. HTTP/2 is used regardless of its `protocol`.
    pub cluster: Option<String>,
    /// Identity of this proxy.
    pub node: Option<Node>,
    /// Directory for the last valid resources, and for an identity issued by the control plane. A proxy that starts
    /// while its control plane is unavailable uses them, and logs it. Private keys are readable only by their owner.
    /// Absent: nothing is stored.
    pub cache_dir: Option<String>,
    /// Pod of this proxy, `NAMESPACE/POD`, for proxies of a Gateway or of a group of Services. The control plane adds
    /// listeners to those of the file, including their certificates, which are stored in `cache_dir`. Absent: only
    /// listeners of the file.
    pub gateway: Option<String>,
}

/// The node identity that a proxy sends to its control plane.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["id"]))]
pub struct Node {
    /// Unique in the mesh: `NAMESPACE/POD`. A control plane that authenticates proxies by certificate trusts only the
    /// namespace of the certificate.
    pub id: Option<String>,
    /// Group of proxies to which it belongs. Default: none.
    pub cluster: Option<String>,
}

/// On-demand discovery: hosts without a virtual host, and destinations of redirected connections, are requested from
/// the control plane when first used. The request or connection waits for the response.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Discovery {
    /// Service for all requests, `NAME:PORT`, regardless of their host, as in a reverse proxy. Absent: the host of
    /// the request.
    pub host: Option<String>,
    /// With `host`: select the virtual host by the request's own host, as in a table of the file. Otherwise the
    /// virtual host of `host` serves all requests. At such an edge, if a cluster follows the client's HTTP version,
    /// only gRPC is forwarded over HTTP/2.
    #[schemars(extend("default" = false))]
    pub by_virtual_host: Option<bool>,
    /// Namespace of hosts with one label: `reviews` is `reviews.NAMESPACE.svc.DOMAIN`.
    #[schemars(extend("default" = "default"))]
    pub namespace: Option<String>,
    /// Domain of the cluster.
    #[schemars(extend("default" = "cluster.local"))]
    pub domain: Option<String>,
    /// Timeout for the control plane's response, 1ms-1m; afterwards a redirected connection is treated as unknown,
    /// and other requests get 503.
    #[schemars(extend("default" = "5s"))]
    pub timeout: Option<TimeSpan>,
    /// Idle time after which a host or address is unsubscribed, 1s-24h.
    #[schemars(extend("default" = "10m"))]
    pub idle_timeout: Option<TimeSpan>,
}
