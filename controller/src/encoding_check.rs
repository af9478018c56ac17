//! Verifies that a resource survives encoding: encodes the resource, decodes it like a proxy, runs the proxy's own
//! checks, and compares the result with the original.

use std::fmt::Debug;

use maglor_config::{raw, resource};
use maglor_xds::{Inbound, Listener, Resource, ServedEndpoint, decode, encode};

/// Encodes a cluster.
///
/// # Errors
/// If a proxy would reject the cluster or decode a different one; the error contains the reason.
pub(crate) fn cluster(raw: &raw::Cluster) -> Result<Resource, String> {
    let meant = resource::cluster(raw, true).map_err(text)?;
    let encoded = encode::cluster(raw).map_err(text)?;
    let read = decode::cluster(&encoded.name, &encoded.body).map_err(text)?;
    let understood = resource::cluster(&read.raw, true).map_err(text)?;
    same(&understood, &meant)?;
    Ok(encoded)
}

/// Encodes the endpoints of a cluster.
///
/// # Errors
/// If a proxy would reject the endpoints; the error contains the reason.
pub(crate) fn endpoints(name: &str, all: &[ServedEndpoint]) -> Result<Resource, String> {
    let encoded = encode::endpoints(name, all).map_err(text)?;
    decode::usable_endpoints(name, &encoded.body).map_err(text)?;
    Ok(encoded)
}

/// Encodes a table of routes.
///
/// # Errors
/// If a proxy would reject the table or decode a different one; the error contains the reason.
pub(crate) fn routes(raw: &raw::RouteTable) -> Result<Resource, String> {
    let meant = resource::routes(raw).map_err(text)?;
    let encoded = encode::routes(raw).map_err(text)?;
    let read = decode::routes(&encoded.name, &encoded.body).map_err(text)?;
    let understood = resource::routes(&read).map_err(text)?;
    same(&understood, &meant)?;
    Ok(encoded)
}

/// Encodes the listener that describes connections to a name.
///
/// # Errors
/// If a proxy would reject the listener; the error contains the reason.
pub(crate) fn listener(name: &str, listener: &Listener) -> Result<Resource, String> {
    let encoded = encode::listener(name, listener).map_err(text)?;
    decode::listener(name, &encoded.body).map_err(text)?;
    Ok(encoded)
}

/// Encodes the inbound configuration of a workload's own proxy.
///
/// # Errors
/// If a proxy would reject the configuration or decode a different one; the error contains the reason.
pub(crate) fn inbound(name: &str, inbound: &Inbound, ahead: &[String]) -> Result<Resource, String> {
    let encoded = encode::inbound(name, inbound, ahead).map_err(text)?;
    let (read, _) = decode::inbound(name, &encoded.body).map_err(text)?;
    read.check(name, true).map_err(text)?;
    match read == *inbound {
        true => Ok(encoded),
        false => Err(CHANGED.to_owned()),
    }
}

const CHANGED: &str = "a proxy would read another value than this one";

/// Compares by debug text, because regular expressions in checked configurations do not implement equality.
fn same(read: &impl Debug, meant: &impl Debug) -> Result<(), String> {
    match format!("{read:?}") == format!("{meant:?}") {
        true => Ok(()),
        false => Err(CHANGED.to_owned()),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it takes errors from `map_err`"
)]
fn text(error: impl ToString) -> String {
    error.to_string()
}
