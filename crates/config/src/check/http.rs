//! Validates HTTP filters.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method};

use super::route::{self, Tables};
use super::rule::{self, DAY, HOUR, MILLISECOND, MINUTE, SECOND};
use super::{Scope, control_plane, load_reports};
use crate::listener::{ClientCertMode, ForwardedMode, HttpProtocol, PathNormalization};
use crate::report::At;
use crate::{HttpFilter, RouteTable, raw};

/// Upgrade tokens of HTTP versions and TLS, which do not open a tunnel.
const NO_TUNNEL: &[&str] = &[
    "h2c", "h2", "h3", "http", "http/1.1", "http/2.0", "tls", "tls/1.0",
];

pub(super) fn filter(
    raw: &raw::Http,
    at: &At<'_>,
    table: &str,
    scope: &Scope<'_>,
    tables: &Tables,
) -> HttpFilter {
    let routes = routes(raw, at, table, scope, tables);
    with_routes(raw, at, routes, scope)
}

/// Validates an HTTP filter with the given routes instead of its own.
pub(super) fn with_routes(
    raw: &raw::Http,
    at: &At<'_>,
    routes: Arc<RouteTable>,
    scope: &Scope<'_>,
) -> HttpFilter {
    let protocol = match raw.protocol {
        None | Some(raw::HttpProtocol::Auto) => HttpProtocol::Auto,
        Some(raw::HttpProtocol::Http1) => HttpProtocol::Http1,
        Some(raw::HttpProtocol::Http2) => HttpProtocol::Http2,
    };
    let allow_connect = raw.allow_connect.unwrap_or(false);
    if !allow_connect {
        warn_connect(&routes, at);
    }
    let number = |value, name: &str, default, max| {
        rule::number::<u32>(value, &at.field(name), default, 1..=max)
    };
    let time = |value, name: &str, default: Duration, range| {
        rule::time(value, &at.field(name), default, range)
    };
    let age = raw.max_connection_age;
    HttpFilter {
        protocol,
        routes,
        discovery: raw
            .discovery
            .as_ref()
            .map(|raw| control_plane::discovery(raw, &at.field("discovery"), scope)),
        path_normalization: raw
            .path_normalization
            .map(PathNormalization::from)
            .unwrap_or_default(),
        x_forwarded: forwarded(raw.x_forwarded, ForwardedMode::Append),
        forwarded: forwarded(raw.forwarded, ForwardedMode::Off),
        client_cert: match raw.x_forwarded_client_cert {
            Some(raw::ClientCertMode::Append) => ClientCertMode::Append,
            Some(raw::ClientCertMode::Remove) => ClientCertMode::Remove,
            None | Some(raw::ClientCertMode::Replace) => ClientCertMode::Replace,
        },
        says_client: raw.x_maglor_client.unwrap_or(false),
        request_id: raw.request_id.unwrap_or(true),
        preserve_request_id: raw.preserve_request_id.unwrap_or(true),
        upgrades: upgrades(raw.upgrades.as_ref(), &at.field("upgrades"), protocol),
        allow_connect,
        idle_timeout: time(
            raw.idle_timeout,
            "idle_timeout",
            HOUR,
            MILLISECOND..=30 * DAY,
        ),
        header_timeout: time(
            raw.header_timeout,
            "header_timeout",
            10 * SECOND,
            MILLISECOND..=HOUR,
        ),
        stream_idle_timeout: time(
            raw.stream_idle_timeout,
            "stream_idle_timeout",
            5 * MINUTE,
            MILLISECOND..=30 * DAY,
        ),
        max_connection_age: age.map(|age| {
            let at = &at.field("max_connection_age");
            rule::explicit_time(age, at, SECOND..=3650 * DAY)
        }),
        max_header_bytes: rule::size(
            raw.max_header_bytes,
            &at.field("max_header_bytes"),
            64 << 10,
            1 << 10..=1 << 20,
        ),
        max_headers: number(raw.max_headers, "max_headers", 128, 4096) as usize,
        max_concurrent_streams: number(
            raw.max_concurrent_streams,
            "max_concurrent_streams",
            128,
            65_536,
        ),
        server_name: server_name(raw.server_name.as_deref(), &at.field("server_name")),
        load_reports: raw.load_reports.as_ref().map(|raw| {
            let at = at.field("load_reports");
            load_reports::load_reports(raw, &at, protocol, scope)
        }),
    }
}

fn forwarded(raw: Option<raw::ForwardedMode>, default: ForwardedMode) -> ForwardedMode {
    match raw {
        None => default,
        Some(raw::ForwardedMode::Append) => ForwardedMode::Append,
        Some(raw::ForwardedMode::Off) => ForwardedMode::Off,
        Some(raw::ForwardedMode::Replace) => ForwardedMode::Replace,
    }
}

fn server_name(raw: Option<&str>, at: &At<'_>) -> Arc<str> {
    let name = raw.unwrap_or("maglor");
    if name.is_empty() || HeaderValue::from_str(name).is_err() {
        at.error("the value is not a valid header value");
    }
    name.into()
}

fn upgrades(raw: Option<&raw::OneOrMany>, at: &At<'_>, protocol: HttpProtocol) -> Vec<String> {
    let Some(raw::OneOrMany(list)) = raw else {
        return vec!["websocket".into()];
    };
    let mut seen = rule::Unique::default();
    for (i, text) in list.iter().enumerate() {
        let (at, name) = (at.index(i), text.to_ascii_lowercase());
        let shown = crate::yaml::short(text);
        if NO_TUNNEL.contains(&name.as_str()) {
            at.error(format!(
                "`{shown}` is a version of HTTP or TLS, not a protocol to tunnel"
            ))
            .help("HTTP/2 needs no upgrade: `protocol: auto` detects it");
        } else if !is_token(&name) {
            at.error(format!("`{shown}` is not the name of a protocol"));
        } else if protocol == HttpProtocol::Http2 {
            at.error(format!("`{shown}` cannot be reached over HTTP/2"))
                .help("`protocol: http2` has no `Upgrade`; use `auto` or `http1`");
        }
        seen.check(&name, &at, "the protocol");
    }
    list.iter().map(|name| name.to_ascii_lowercase()).collect()
}

/// Returns whether a text is `token` or `token/version`.
fn is_token(name: &str) -> bool {
    name.split('/').count() <= 2
        && name
            .split('/')
            .all(|part| Method::from_bytes(part.as_bytes()).is_ok())
}

/// Returns the inline virtual hosts, or the table that the filter refers to.
fn routes(
    raw: &raw::Http,
    at: &At<'_>,
    name: &str,
    scope: &Scope<'_>,
    tables: &Tables,
) -> Arc<RouteTable> {
    let set = [
        ("virtual_hosts", !raw.virtual_hosts.is_empty()),
        ("routes", raw.routes.is_some()),
    ];
    if raw.discovery.is_some() && set.iter().all(|(_, there)| !there) {
        return Arc::new(RouteTable {
            name: name.into(),
            ..RouteTable::default()
        });
    }
    match (rule::exactly_one(&set, at), &raw.routes) {
        (Some("routes"), Some(table)) => {
            scope.resolve_table(table, &at.field("routes"));
            tables.get(table.as_str()).cloned().unwrap_or_default()
        }
        _ => {
            let hosts = at.field("virtual_hosts");
            Arc::new(route::table(name.into(), &raw.virtual_hosts, &hosts, scope))
        }
    }
}

fn warn_connect(routes: &RouteTable, at: &At<'_>) {
    let mut all = routes.virtual_hosts.iter().flat_map(|host| &host.routes);
    if let Some(route) = all.find(|route| route.matches.methods == [Method::CONNECT]) {
        at.warning(format!(
            "the route `{}` matches only CONNECT, which is answered with 405",
            route.name
        ))
        .help("write `allow_connect: true`");
    }
}
