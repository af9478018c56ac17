//! Detects endpoints that are the proxy's own admin server, which trusts connections over loopback.

use std::net::{IpAddr, SocketAddr};

use crate::report::At;
use crate::{Admin, raw};

/// Checks all endpoints. The proxy also refuses to connect to its own admin server, whatever the source of an endpoint:
/// names are resolved later, and a control plane adds endpoints.
pub(super) fn check(clusters: &[raw::Cluster], admin: Option<&Admin>, at: &At<'_>) {
    let Some(admin) = admin else { return };
    let clusters_at = at.field("clusters");
    for (i, cluster) in clusters.iter().enumerate() {
        let cluster_at = clusters_at.index(i);
        let list = cluster_at.field("endpoints");
        for (j, endpoint) in cluster.endpoints.iter().enumerate() {
            let text = endpoint.0.address.as_deref().unwrap_or_default();
            if is_admin(text, admin) {
                list.index(j)
                    .error(format!("{text} is this proxy's own admin server: clients would be treated as operators"))
                    .help("to publish metrics, let the admin server listen on an address that Prometheus can reach");
            }
        }
    }
}

fn is_admin(text: &str, admin: &Admin) -> bool {
    let (ip, port) = match text.parse::<SocketAddr>() {
        Ok(address) => (address.ip().to_canonical(), address.port()),
        Err(_) => match text.rsplit_once(':') {
            Some((host, port)) if host.eq_ignore_ascii_case("localhost") => {
                (IpAddr::from([127, 0, 0, 1]), port.parse().unwrap_or(0))
            }
            _ => return false,
        },
    };
    let own = admin.address.ip().to_canonical();
    let reaches = own.is_unspecified() || own == ip;
    ip.is_loopback() && reaches && port != 0 && port == admin.address.port()
}
