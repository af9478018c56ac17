//! Validates route tables, virtual hosts and routes.

mod forward;
mod hash;
pub(super) mod matching;
pub(super) mod rate_limit_and_fault;
mod redirect;
mod retry;
mod rewrite;

use std::collections::HashMap;
use std::sync::Arc;

use super::headers::{self, Message};
use super::rule::{self, Unique};
use super::{Scope, host, reach};
use crate::report::At;
use crate::{Domain, Route, RouteTable, VirtualHost, raw};

/// Route tables by name.
pub(super) type Tables = HashMap<String, Arc<RouteTable>>;

/// Validates the top-level route tables.
pub(super) fn tables(raw: &[raw::RouteTable], at: &At<'_>, scope: &Scope<'_>) -> Tables {
    let (mut names, mut tables) = (Unique::default(), Tables::new());
    for (i, raw) in raw.iter().enumerate() {
        let at = at.index(i);
        let name = rule::name(
            raw.name.as_ref(),
            &at,
            "`http.routes` refers to a table by its name",
        );
        if let Some(name) = &name {
            names.check(name, &at.field("name"), "the route table");
        }
        let hosts = at.field("virtual_hosts");
        if raw.virtual_hosts.is_empty() {
            at.missing(
                "virtual_hosts",
                "write `virtual_hosts: [{domains: [\"*\"], routes: […]}]`",
            );
        }
        let name = name.unwrap_or_default();
        let table = table(Arc::clone(&name), &raw.virtual_hosts, &hosts, scope);
        tables.insert(name.to_string(), Arc::new(table));
    }
    tables
}

/// Validates a route table, at the top level or inside an HTTP filter.
pub(super) fn table(
    name: Arc<str>,
    raw: &[raw::VirtualHost],
    at: &At<'_>,
    scope: &Scope<'_>,
) -> RouteTable {
    let mut seen = Seen::default();
    let each = raw.iter().enumerate();
    let hosts = each.map(|(i, raw)| virtual_host(raw, &at.index(i), &mut seen, scope));
    RouteTable {
        virtual_hosts: hosts.collect(),
        name,
    }
}

/// The names that must be unique in a table.
#[derive(Default)]
struct Seen {
    domains: Unique,
    hosts: Unique,
    routes: Unique,
}

fn virtual_host(
    raw: &raw::VirtualHost,
    at: &At<'_>,
    seen: &mut Seen,
    scope: &Scope<'_>,
) -> VirtualHost {
    let domains = domains(raw, at, &mut seen.domains);
    let first = raw.domains.as_ref().and_then(|list| list.0.first());
    let name: Arc<str> = match (&raw.name, first) {
        (Some(name), _) | (None, Some(name)) => name.as_str().into(),
        (None, None) => Arc::default(),
    };
    if raw.name.is_some() && rule::well_formed(&name, &at.field("name")) {
        seen.hosts
            .check(&name, &at.field("name"), "the virtual host");
    }
    let list = at.field("routes");
    if raw.routes.is_empty() {
        at.missing("routes", "write `routes: [{cluster: NAME}]`");
    }
    let each = raw.routes.iter().enumerate();
    // The list of a host keeps this space. There may be many hosts.
    let mut routes = Vec::with_capacity(raw.routes.len());
    routes.extend(each.filter_map(|(i, raw)| {
        let route = route(raw, i, &list.index(i), &name, &mut seen.routes, scope)?;
        Some((i, Arc::new(route)))
    }));
    reach::warn_unreachable(&routes, &list);
    VirtualHost {
        domains,
        routes: routes.into_iter().map(|(_, route)| route).collect(),
        request_headers: headers::rules(
            raw.request_headers.as_ref(),
            &at.field("request_headers"),
            Message::Request,
        ),
        response_headers: headers::rules(
            raw.response_headers.as_ref(),
            &at.field("response_headers"),
            Message::Response,
        ),
        name,
    }
}

fn domains(raw: &raw::VirtualHost, at: &At<'_>, seen: &mut Unique) -> Vec<Domain> {
    let list = raw.domains.as_ref().map_or(&[][..], |list| &list.0);
    if list.is_empty() {
        at.missing("domains", "write `domains: [\"*\"]` for any host");
    }
    let (at, mut domains) = (at.field("domains"), Vec::with_capacity(list.len()));
    for (i, text) in list.iter().enumerate() {
        let at = at.index(i);
        match host::domain(text) {
            Ok(domain) => {
                seen.check(&text.to_ascii_lowercase(), &at, "the domain");
                domains.push(domain);
            }
            Err(help) => {
                at.error(format!("`{}` is not a domain", crate::yaml::short(text)))
                    .help(help);
            }
        }
    }
    domains
}

pub(super) fn route(
    raw: &raw::Route,
    index: usize,
    at: &At<'_>,
    host: &str,
    names: &mut Unique,
    scope: &Scope<'_>,
) -> Option<Route> {
    let name = raw
        .name
        .clone()
        .unwrap_or_else(|| format!("{host}/{index}"));
    if raw.name.is_none() || rule::well_formed(&name, &at.field("name")) {
        names.check(&name, &at.field("name"), "the route");
    }
    let empty = raw::RouteMatch::default();
    let matches = raw.r#match.as_ref().unwrap_or(&empty);
    let matches = matching::route_match(matches, &at.field("match"), scope);
    let action = forward::action(raw, at, &matches, scope);
    let limit = raw.rate_limit.as_ref();
    let rate_limit =
        limit.and_then(|raw| rate_limit_and_fault::rate_limit(&raw.0, &at.field("rate_limit")));
    let fault = raw.fault.as_ref();
    let fault = fault.map(|raw| rate_limit_and_fault::fault(raw, &at.field("fault"), scope));
    let (request, response) = (at.field("request_headers"), at.field("response_headers"));
    Some(Route {
        name: name.into(),
        matches,
        action: action?,
        rate_limit,
        fault,
        request_headers: headers::rules(raw.request_headers.as_ref(), &request, Message::Request),
        response_headers: headers::rules(
            raw.response_headers.as_ref(),
            &response,
            Message::Response,
        ),
    })
}
