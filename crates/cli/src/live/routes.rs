//! `maglor routes`: lists routes, as served by the controller or as applied by a proxy.

use std::process::ExitCode;

use maglor_config::route::{Route as Checked, RouteAction, WeightedCluster};
use maglor_config::{raw, resource};
use serde::Serialize;

use super::LiveError;
use super::access::Instance;
use super::listing::Listing;
use super::served::{Host, Listener, Resource, Route, Share, Tables, short};
use super::table::{self, Column, Row, or_dash};

const EXAMPLES: &str = "\
Examples:
  Routes of the Service reviews, as configured by the controller:
    maglor routes reviews
  Routes in force in the proxies of a workload, including on-demand ones:
    maglor routes --of productpage-v1
  Without Kubernetes:
    maglor routes --controller 127.0.0.1:15011 -o yaml
    maglor routes --proxy 127.0.0.1:15020";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    listing: Listing,
}

#[derive(Debug, Serialize)]
struct Line {
    host: String,
    /// Namespace of the clients for which the route applies; `None` for all clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<String>,
    route: String,
    #[serde(rename = "match")]
    matches: String,
    to: Vec<To>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    retries: u32,
    /// The proxy and its listener; `None` for the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listener: Option<String>,
}

/// A destination or other action of a route, and its share of the requests.
#[derive(Debug, Serialize)]
struct To {
    what: String,
    /// Percentage of the requests.
    percent: f64,
}

impl To {
    fn alone(what: String) -> Vec<Self> {
        let percent = 100.0;
        vec![Self { what, percent }]
    }

    fn shares<'a>(shares: impl Iterator<Item = (&'a str, u32)> + Clone) -> Vec<Self> {
        let all: u64 = shares.clone().map(|(_, weight)| u64::from(weight)).sum();
        shares
            .map(|(name, weight)| Self {
                what: name.to_owned(),
                percent: f64::from(weight) * 100.0 / (all.max(1) as f64),
            })
            .collect()
    }
}

impl Row for Line {
    const COLUMNS: &'static [Column] = &[
        Column::text("HOST").of("host"),
        Column::text("MATCH").of("match"),
        Column::text("TO").of("to"),
        Column::number("TIMEOUT").of("timeout_ms"),
        Column::number("RETRIES").of("retries"),
        Column::text("CLIENTS").of("clients"),
        Column::text("ROUTE").of("route").wide(),
        Column::text("LISTENER").of("listener").wide(),
        Column::text("SEEN BY").of("seen_by"),
    ];

    fn cells(&self) -> Vec<String> {
        let to = self.to.iter().map(|to| match self.to.len() {
            1 => short(&to.what),
            _ => format!("{} {:.0} %", short(&to.what), to.percent),
        });
        vec![
            short(&self.host),
            self.matches.clone(),
            to.collect::<Vec<_>>().join(", "),
            or_dash(self.timeout_ms.map(|ms| format!("{ms} ms"))),
            self.retries.to_string(),
            self.clients.clone().unwrap_or_else(|| "all".to_owned()),
            self.route.clone(),
            or_dash(self.listener.as_ref()),
            self.seen_by
                .clone()
                .unwrap_or_else(|| "controller".to_owned()),
        ]
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    super::run(async {
        let listing = &options.listing;
        let lines = match listing.proxies().await? {
            Some(proxies) => of_proxies(listing, &proxies).await?,
            None => of_controller(listing).await?,
        };
        table::show(&lines, listing.output, "no matching routes");
        Ok(())
    })
}

async fn of_proxies(listing: &Listing, proxies: &[Instance]) -> Result<Vec<Line>, LiveError> {
    let mut lines = Vec::new();
    for proxy in proxies {
        let tables: Tables = proxy.admin.json("/routes").await?;
        for listener in &tables.listeners {
            lines.extend(in_force(listing, proxy, listener));
        }
    }
    Ok(lines)
}

fn in_force<'a>(
    listing: &'a Listing,
    proxy: &'a Instance,
    listener: &'a Listener,
) -> impl Iterator<Item = Line> + 'a {
    let line = move |host: &str, name: &str, matches: &str, to: Vec<To>| Line {
        host: host.to_owned(),
        clients: None,
        route: name.to_owned(),
        matches: matches.to_owned(),
        to,
        timeout_ms: None,
        retries: 0,
        seen_by: Some(proxy.name.clone()),
        listener: Some(listener.name.clone()),
    };
    listener.chains.iter().flat_map(move |chain| {
        let mut lines = Vec::new();
        for host in chain
            .hosts
            .iter()
            .filter(|host| host.domains.iter().any(|name| listing.wants(name)))
        {
            let name = host.domains.join(", ");
            lines.extend(host.routes.iter().flatten().map(|route| Line {
                timeout_ms: route.timeout_ms,
                retries: route.retries,
                ..line(&name, &route.name, &route.matches, action(route))
            }));
            if let Some(cluster) = &host.bytes {
                lines.push(line(&name, "-", "not HTTP", To::alone(cluster.clone())));
            }
            if is_absent(host) {
                let to = To::alone("nothing matches".to_owned());
                lines.push(line(&name, "-", "-", to));
            }
        }
        if let Some(cluster) = chain
            .bytes
            .as_ref()
            .filter(|cluster| listing.wants(cluster))
        {
            let to = To::alone(cluster.clone());
            lines.push(line("-", &chain.name, "not HTTP", to));
        }
        lines
    })
}

fn is_absent(host: &Host) -> bool {
    host.discovered && host.routes.is_none()
}

fn action(route: &Route) -> Vec<To> {
    match (route.respond, route.redirect) {
        (Some(status), _) => To::alone(format!("answer {status}")),
        (_, Some(status)) => To::alone(format!("redirect {status}")),
        (None, None) => {
            let share = |share: &'_ Share| (share.name.clone(), share.weight);
            let shares: Vec<_> = route.clusters.iter().map(share).collect();
            To::shares(shares.iter().map(|(name, weight)| (name.as_str(), *weight)))
        }
    }
}

async fn of_controller(listing: &Listing) -> Result<Vec<Line>, LiveError> {
    let Some(controller) = listing.controller().await? else {
        return Ok(Vec::new());
    };
    let tables: Vec<Resource> = controller.admin.json("/resources?kind=routes&full").await?;
    let mut lines = Vec::new();
    for table in tables.iter().filter(|table| listing.wants(&table.name)) {
        lines.extend(lines_of(table)?);
    }
    Ok(lines)
}

/// Returns the routes of a table, parsed like those of a configuration file.
fn lines_of(table: &Resource) -> Result<Vec<Line>, LiveError> {
    let unread = |errors: maglor_config::Errors| LiveError::Resource {
        name: table.name.clone(),
        why: errors.to_string(),
    };
    let raw: raw::RouteTable =
        resource::read(&table.resource.to_string(), &table.name).map_err(unread)?;
    let checked = resource::routes(&raw).map_err(unread)?;
    let hosts = checked.virtual_hosts.iter();
    let lines = hosts.flat_map(|host| host.routes.iter().map(|route| line(table, route)));
    Ok(lines.collect())
}

fn line(table: &Resource, route: &Checked) -> Line {
    let (to, timeout, retries) = match &route.action {
        RouteAction::Direct(direct) => (
            To::alone(format!("answer {}", direct.status.as_u16())),
            None,
            0,
        ),
        RouteAction::Redirect(redirect) => (
            To::alone(format!("redirect {}", redirect.status.as_u16())),
            None,
            0,
        ),
        RouteAction::Forward(forward) => {
            let share = |one: &WeightedCluster| (one.destination.to_string(), one.weight);
            let shares: Vec<_> = forward.clusters.iter().map(share).collect();
            let to = To::shares(shares.iter().map(|(name, weight)| (name.as_str(), *weight)));
            (to, forward.timeout, forward.retry.policy.attempts)
        }
    };
    Line {
        host: table.name.clone(),
        clients: table.namespace.clone(),
        route: route.name.to_string(),
        matches: route.matches.to_string(),
        to,
        timeout_ms: timeout.and_then(|timeout| u64::try_from(timeout.as_millis()).ok()),
        retries,
        seen_by: None,
        listener: None,
    }
}
