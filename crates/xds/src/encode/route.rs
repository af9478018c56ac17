//! Encodes route tables.

mod action;
mod matching;
mod retry;

pub(crate) use retry::retry;

use maglor_config::raw::{self, PathMatch, Short};

use super::{EncodeError, headers};
use crate::proto::envoy::config::route::v3 as wire;
use crate::{Kind, decode, maglor_metadata};

pub(super) fn encode(
    raw: &raw::RouteTable,
) -> Result<(String, wire::RouteConfiguration), EncodeError> {
    let name = raw.name.clone().unwrap_or_default();
    if name.is_empty() {
        return Err(missing("", "name"));
    }
    let hosts = raw.virtual_hosts.iter().enumerate();
    let hosts = hosts.map(|(i, raw)| virtual_host(raw, &name, i));
    let message = wire::RouteConfiguration {
        virtual_hosts: hosts.collect::<Result<_, _>>()?,
        name: name.clone(),
        ..wire::RouteConfiguration::default()
    };
    Ok((name, message))
}

fn missing(table: &str, field: impl Into<String>) -> EncodeError {
    EncodeError::Missing {
        kind: Kind::Routes,
        name: table.to_owned(),
        field: field.into(),
    }
}

fn virtual_host(
    raw: &raw::VirtualHost,
    table: &str,
    at: usize,
) -> Result<wire::VirtualHost, EncodeError> {
    let domains = raw.domains.as_ref().map_or(&[][..], |list| &list.0);
    let Some(first) = domains.first() else {
        return Err(missing(table, format!("virtual_hosts[{at}].domains")));
    };
    let routes = raw.routes.iter().enumerate();
    let routes = routes.map(|(i, raw)| {
        let place = format!("virtual_hosts[{at}].routes[{i}]");
        route(raw, table, &place)
    });
    let (request_headers_to_add, request_headers_to_remove) =
        headers::encode(raw.request_headers.as_ref());
    let (response_headers_to_add, response_headers_to_remove) =
        headers::encode(raw.response_headers.as_ref());
    Ok(wire::VirtualHost {
        name: raw.name.clone().unwrap_or_else(|| first.clone()),
        domains: domains.to_vec(),
        routes: routes.collect::<Result<_, _>>()?,
        request_headers_to_add,
        request_headers_to_remove,
        response_headers_to_add,
        response_headers_to_remove,
        ..wire::VirtualHost::default()
    })
}

fn route(raw: &raw::Route, table: &str, place: &str) -> Result<wire::Route, EncodeError> {
    let raw = &plain(raw);
    let action = action::encode(raw).ok_or_else(|| missing(table, place))?;
    let (request_headers_to_add, request_headers_to_remove) =
        headers::encode(raw.request_headers.as_ref());
    let (response_headers_to_add, response_headers_to_remove) =
        headers::encode(raw.response_headers.as_ref());
    let mut message = wire::Route {
        r#match: Some(matching::encode(raw.r#match.as_ref())),
        action: Some(action),
        name: raw.name.clone().unwrap_or_default(),
        request_headers_to_add,
        request_headers_to_remove,
        response_headers_to_add,
        response_headers_to_remove,
        ..wire::Route::default()
    };
    let said = decode::native_route(&message, table, place)?;
    message.metadata =
        maglor_metadata::beyond(raw, &said).map_err(|source| EncodeError::Words {
            kind: Kind::Routes,
            name: table.to_owned(),
            source,
        })?;
    if maglor_metadata::mention(message.metadata.as_ref(), "match") {
        matching::never(message.r#match.get_or_insert_default());
    }
    Ok(message)
}

/// Returns the route without the fields that have their default values.
fn plain(raw: &raw::Route) -> raw::Route {
    let mut raw = raw.clone();
    let Some(conditions) = &mut raw.r#match else {
        return raw;
    };
    let any = |path: &Short<PathMatch>| matches!(&path.0, PathMatch { prefix: Some(prefix), exact: None, regex: None } if prefix == "/");
    if conditions.path.as_ref().is_some_and(any) {
        conditions.path = None;
    }
    if conditions.grpc == Some(false) {
        conditions.grpc = None;
    }
    let nothing = conditions.path.is_none()
        && conditions.methods.is_none()
        && conditions.headers.is_empty()
        && conditions.query.is_empty()
        && conditions.grpc.is_none();
    if nothing {
        raw.r#match = None;
    }
    raw
}
