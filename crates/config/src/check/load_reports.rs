//! Validates the load reports of a server's own proxy to balancers.

use super::Scope;
use crate::listener::{HttpProtocol, LoadReports, Peers};
use crate::report::At;
use crate::{Address, raw};

pub(super) fn load_reports(
    raw: &raw::LoadReports,
    at: &At<'_>,
    protocol: HttpProtocol,
    scope: &Scope<'_>,
) -> LoadReports {
    if protocol == HttpProtocol::Http2 {
        at.error("balancers connect over HTTP/1.1, which `protocol: http2` excludes")
            .on_key()
            .help("use `protocol: auto`");
    }
    LoadReports {
        peers: peers(raw, at, scope),
        orca: raw.orca.unwrap_or(false),
    }
}

fn peers(raw: &raw::LoadReports, at: &At<'_>, scope: &Scope<'_>) -> Option<Peers> {
    let (name, text) = match (&raw.cluster, &raw.endpoint) {
        (None, None) => return None,
        (Some(_), None) => {
            at.missing(
                "endpoint",
                "set the endpoint of the cluster that stands for this server",
            );
            return None;
        }
        (None, Some(_)) => {
            at.missing("cluster", "set the cluster of all servers of the service");
            return None;
        }
        (Some(name), Some(text)) => (name, text),
    };
    // The control plane may provide it later.
    let cluster = scope.resolve_cluster(name, &at.field("cluster"));
    let at = at.field("endpoint");
    let Ok(endpoint) = text.parse::<Address>() else {
        at.error("invalid address; expected `IP:PORT`, `[IPv6]:PORT` or `unix:/PATH`");
        return None;
    };
    let known = cluster.map(|cluster| cluster.endpoints.iter());
    let mut known = known.map(|all| all.filter_map(|one| one.0.address.as_deref()));
    let is_there = known
        .as_mut()
        .map(|all| all.any(|known| known.parse().as_ref() == Ok(&endpoint)));
    if is_there == Some(false) {
        at.error(format!("`{text}` is not an endpoint of cluster `{name}`"))
            .help("the ledger identifies servers by the addresses that clients use");
    }
    Some(Peers {
        cluster: name.as_str().into(),
        endpoint,
    })
}
