//! `maglor endpoints`: lists the endpoints of a service, as served by the controller or as seen by
//! a proxy.

use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use super::LiveError;
use super::access::Instance;
use super::listing::Listing;
use super::served::{Cluster, Clusters, Resource, short};
use super::table::{self, Column, Row, or_dash};

const EXAMPLES: &str = "\
Examples:
  Endpoints of the Service reviews, as configured by the controller:
    maglor endpoints reviews
  Endpoints as seen by the proxy of a pod, with requests in flight and ejections:
    maglor endpoints reviews --of productpage-v1-5b4c-x2x
  Without Kubernetes:
    maglor endpoints --controller 127.0.0.1:15011
    maglor endpoints reviews --proxy 127.0.0.1:15020 -o json";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    listing: Listing,
}

#[derive(Debug, Serialize)]
struct Line {
    service: String,
    /// The proxy that reported the endpoint; `None` for the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_by: Option<String>,
    address: String,
    weight: u32,
    priority: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    locality: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    outstanding: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
}

impl Row for Line {
    const COLUMNS: &'static [Column] = &[
        Column::text("SERVICE").of("service"),
        Column::text("ADDRESS").of("address"),
        Column::text("STATE").of("state"),
        Column::number("WEIGHT").of("weight"),
        Column::number("OUTSTANDING").of("outstanding"),
        Column::text("TLS").of("tls"),
        Column::text("LOCALITY").of("locality"),
        Column::number("PRIORITY").of("priority").wide(),
        Column::text("POLICY").of("policy").wide(),
        Column::text("SEEN BY").of("seen_by"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            short(&self.service),
            self.address.clone(),
            self.state.to_owned(),
            self.weight.to_string(),
            or_dash(self.outstanding),
            or_dash(self.tls.as_ref()),
            or_dash(self.locality.as_ref()),
            self.priority.to_string(),
            or_dash(self.policy.as_ref()),
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
        table::show(&lines, listing.output, "no matching endpoints");
        Ok(())
    })
}

async fn of_proxies(listing: &Listing, proxies: &[Instance]) -> Result<Vec<Line>, LiveError> {
    let mut lines = Vec::new();
    for proxy in proxies {
        let seen: Clusters = proxy.admin.json("/clusters").await?;
        let clusters = seen.clusters.into_iter();
        for cluster in clusters.filter(|cluster| listing.wants(&cluster.name)) {
            lines.extend(seen_by(proxy, cluster));
        }
    }
    Ok(lines)
}

fn seen_by(proxy: &Instance, cluster: Cluster) -> impl Iterator<Item = Line> {
    let Cluster {
        name,
        policy,
        tls,
        endpoints,
    } = cluster;
    endpoints.into_iter().map(move |endpoint| Line {
        service: name.clone(),
        seen_by: Some(proxy.name.clone()),
        state: match () {
            () if endpoint.draining => "draining",
            () if endpoint.ejected => "ejected",
            () if !endpoint.healthy => "unhealthy",
            () => "healthy",
        },
        address: match endpoint.host {
            Some(host) => format!("{} ({host})", endpoint.address),
            None => endpoint.address,
        },
        weight: endpoint.weight,
        priority: endpoint.priority,
        locality: endpoint.locality,
        outstanding: Some(endpoint.outstanding),
        tls: tls.clone(),
        policy: Some(policy.clone()),
    })
}

async fn of_controller(listing: &Listing) -> Result<Vec<Line>, LiveError> {
    let Some(controller) = listing.controller().await? else {
        return Ok(Vec::new());
    };
    let path = |kind: &str| format!("/resources?kind={kind}&full");
    let clusters: Vec<Resource> = controller.admin.json(&path("cluster")).await?;
    let endpoints: Vec<Resource> = controller.admin.json(&path("endpoints")).await?;
    let mut lines = Vec::new();
    for cluster in clusters.iter().filter(|one| listing.wants(&one.name)) {
        let own = cluster.resource["endpoints"].as_array();
        let apart = endpoints.iter().find(|one| one.name == cluster.name);
        let list = apart.and_then(|one| one.resource.as_array()).or(own);
        let lines_of = list.into_iter().flatten();
        lines.extend(lines_of.map(|endpoint| reported(cluster, endpoint)));
    }
    Ok(lines)
}

fn reported(cluster: &Resource, endpoint: &Value) -> Line {
    let number = |field: &str, default: u32| {
        let number = endpoint[field].as_u64();
        number.map_or(default, |number| u32::try_from(number).unwrap_or(u32::MAX))
    };
    // An endpoint in a cluster's own list may consist of an address only.
    let address = endpoint["address"].as_str().or(endpoint.as_str());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let tls = match &cluster.resource["tls"] {
        Value::String(word) => Some(word.clone()),
        Value::Object(fields) => fields.keys().next().cloned(),
        _ => None,
    };
    Line {
        service: cluster.name.clone(),
        seen_by: None,
        address: address.unwrap_or("-").to_owned(),
        weight: number("weight", 1),
        priority: number("priority", 0),
        locality: text(&endpoint["locality"]),
        state: match endpoint["health"].as_str() {
            Some("draining") => "draining",
            Some("unhealthy") => "unhealthy",
            _ => "healthy",
        },
        outstanding: None,
        tls,
        policy: text(&cluster.resource["policy"]),
    }
}
