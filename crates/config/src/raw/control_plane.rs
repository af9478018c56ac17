//! `control_plane` and `discovery`: resources from a control plane.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::TimeSpan;

/// Control plane for services that are not in the file (Envoy's discovery protocol, delta ADS; see docs/xds.md).
/// Chains with `discovery` use it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["cluster", "node"]))]
pub struct ControlPlane {
    /// Name of the cluster of the control plane's servers, with their addresses and TLS. HTTP/2 is used regardless of
    /// the cluster's `protocol`.
    pub cluster: Option<String>,
    /// Node id and group of this proxy, which it sends to the control plane.
    pub node: Option<Node>,
    /// Directory for the last valid resources, and for an identity issued by the control plane. A proxy that starts
    /// while its control plane is unavailable uses these files, and logs that it does. Private keys are readable only
    /// by their owner. Absent: nothing is stored.
    pub cache_dir: Option<String>,
    /// Pod of this proxy, `NAMESPACE/POD`, for proxies of a Gateway or of a group of Services. The control plane adds
    /// listeners to those of the file, including their certificates, which are stored in `cache_dir`. Absent: only
    /// listeners of the file.
    pub gateway: Option<String>,
}

/// The node identity that a proxy sends to its control plane.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["id"]))]
pub struct Node {
    /// Node id, unique in the mesh: `NAMESPACE/POD`. A control plane that authenticates proxies by certificate trusts
    /// only the namespace of the certificate.
    pub id: Option<String>,
    /// Group of proxies to which this proxy belongs. Default: none.
    pub cluster: Option<String>,
}

/// On-demand discovery: hosts without a virtual host, and destinations of redirected connections, are requested from
/// the control plane when first used. The request or connection waits for the response.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Discovery {
    /// Service for all requests, `NAME:PORT`, regardless of their host, as in a reverse proxy. Absent: the host of each
    /// request.
    pub host: Option<String>,
    /// With `host`: whether the request's own host selects the virtual host, as in a table of the file; if not, the
    /// virtual host of `host` serves all requests. With `true`, the client is taken to be outside the mesh: if a
    /// cluster follows the client's HTTP version, only gRPC is forwarded over HTTP/2.
    #[schemars(extend("default" = false))]
    pub by_virtual_host: Option<bool>,
    /// Namespace of hosts with one label: `reviews` stands for `reviews.NAMESPACE.svc.DOMAIN`.
    #[schemars(extend("default" = "default"))]
    pub namespace: Option<String>,
    /// Domain of the cluster.
    #[schemars(extend("default" = "cluster.local"))]
    pub domain: Option<String>,
    /// Timeout for the control plane's response, 1ms-1m; after that time, a redirected connection is treated as one to
    /// an unknown destination, and other requests get 503.
    #[schemars(extend("default" = "5s"))]
    pub timeout: Option<TimeSpan>,
    /// Time without calls to a host or address after which the proxy unsubscribes from it, 1s-24h.
    #[schemars(extend("default" = "10m"))]
    pub idle_timeout: Option<TimeSpan>,
}
