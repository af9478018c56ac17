//! Decodes route tables.

mod action;
mod fraction;
mod matching;

use maglor_config::raw::{self, OneOrMany};

use super::{DecodeError, Fault, headers, native_route, non_empty, overlay};
use crate::proto::envoy::config::route::v3 as wire;
use crate::{Kind, maglor_metadata};

pub(super) fn decode(message: &wire::RouteConfiguration) -> Result<raw::RouteTable, DecodeError> {
    let of = |fault: Fault| fault.of(Kind::Routes, &message.name);
    let headers = [
        (
            "request_headers_to_add",
            message.request_headers_to_add.is_empty(),
        ),
        (
            "request_headers_to_remove",
            message.request_headers_to_remove.is_empty(),
        ),
        (
            "response_headers_to_add",
            message.response_headers_to_add.is_empty(),
        ),
        (
            "response_headers_to_remove",
            message.response_headers_to_remove.is_empty(),
        ),
    ];
    if let Some((field, _)) = headers.iter().find(|(_, empty)| !empty) {
        return Err(of(Fault::new(
            *field,
            "not supported on the route configuration; set the field on virtual hosts",
        )));
    }
    let hosts = message.virtual_hosts.iter().enumerate();
    let hosts =
        hosts.map(|(i, host)| virtual_host(host, &message.name, &format!("virtual_hosts[{i}]")));
    Ok(raw::RouteTable {
        name: non_empty(&message.name),
        virtual_hosts: hosts.collect::<Result<_, _>>()?,
    })
}

fn virtual_host(
    message: &wire::VirtualHost,
    table: &str,
    place: &str,
) -> Result<raw::VirtualHost, DecodeError> {
    let of = |fault: Fault| fault.within(place).of(Kind::Routes, table);
    if message.require_tls != 0 {
        return Err(of(Fault::unsupported("require_tls")));
    }
    if !message.typed_per_filter_config.is_empty() {
        return Err(of(Fault::unsupported("typed_per_filter_config")));
    }
    let (add, remove) = (
        &message.request_headers_to_add,
        &message.request_headers_to_remove,
    );
    let request_headers = headers::decode("request_headers", add, remove).map_err(of)?;
    let (add, remove) = (
        &message.response_headers_to_add,
        &message.response_headers_to_remove,
    );
    let response_headers = headers::decode("response_headers", add, remove).map_err(of)?;
    let routes = message.routes.iter().enumerate().map(|(i, route)| {
        let mut route = std::borrow::Cow::Borrowed(route);
        inherit(&mut route, message.retry_policy.as_ref());
        one(&route, table, &format!("{place}.routes[{i}]"))
    });
    Ok(raw::VirtualHost {
        name: non_empty(&message.name),
        domains: Some(OneOrMany(message.domains.clone())),
        routes: routes.collect::<Result<_, _>>()?,
        request_headers,
        response_headers,
    })
}

/// Applies the retry policy of the virtual host to a route without a retry policy.
fn inherit(route: &mut std::borrow::Cow<'_, wire::Route>, retry: Option<&wire::RetryPolicy>) {
    let Some(retry) = retry else { return };
    if let Some(wire::route::Action::Route(action)) = &mut route.to_mut().action {
        action.retry_policy.get_or_insert_with(|| retry.clone());
    }
}

fn one(message: &wire::Route, table: &str, place: &str) -> Result<raw::Route, DecodeError> {
    let metadata = message.metadata.as_ref();
    if !maglor_metadata::mention(metadata, "match") {
        let conditions = message.r#match.as_ref();
        matching::refuse(conditions)
            .map_err(|fault| fault.within(place).of(Kind::Routes, table))?;
    }
    let native = native_route(message, table, place)?;
    overlay(Kind::Routes, table, native, metadata)
}

/// Decodes Envoy's own fields of a route.
pub(super) fn native(message: &wire::Route) -> Result<raw::Route, Fault> {
    if !message.typed_per_filter_config.is_empty() {
        return Err(Fault::unsupported("typed_per_filter_config"));
    }
    let (add, remove) = (
        &message.request_headers_to_add,
        &message.request_headers_to_remove,
    );
    let request_headers = headers::decode("request_headers", add, remove)?;
    let (add, remove) = (
        &message.response_headers_to_add,
        &message.response_headers_to_remove,
    );
    let response_headers = headers::decode("response_headers", add, remove)?;
    let mut raw = raw::Route {
        name: non_empty(&message.name),
        r#match: matching::decode(message.r#match.as_ref())?,
        request_headers,
        response_headers,
        ..raw::Route::default()
    };
    action::decode(message.action.as_ref(), &mut raw)?;
    Ok(raw)
}
