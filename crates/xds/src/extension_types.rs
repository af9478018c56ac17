//! Names and type URLs of the Envoy extensions that messages contain.

/// The key of a cluster's HTTP options in Envoy, and their type URL.
pub(crate) const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
pub(crate) const HTTP_OPTIONS_TYPE: &str =
    "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// The type URLs of the filters, inside and outside of a `Listener`.
pub(crate) const HTTP_TYPE: &str = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
pub(crate) const TCP_TYPE: &str =
    "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
pub(crate) const ROUTER_TYPE: &str =
    "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
