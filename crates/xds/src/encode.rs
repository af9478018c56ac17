//! Our words → Envoy's types.
//!
//! Envoy's own fields wherever they exist, so that a stock Envoy or gRPC does the same or the nearest
//! it can; the rest as `filter_metadata["maglor.dev"]`, which [`crate::decode`] puts back.

mod cluster;
mod endpoints;
mod guard;
mod headers;
mod listener;
mod route;

pub(crate) use cluster::{HTTP_OPTIONS, HTTP_OPTIONS_TYPE};
pub(crate) use guard::outlier;
pub(crate) use listener::{HTTP_TYPE, ROUTER_TYPE, TCP_TYPE};
pub(crate) use route::retry;

use bytes::Bytes;
use maglor_config::raw;
use maglor_identity::TrustBundle;
use prost::Message;
use prost_types::Any;

use crate::proto::envoy::config::core::v3::{self as core, config_source::ConfigSourceSpecifier};
use crate::proto::maglor::identity::v1 as identity;
use crate::proto::maglor::proxy::v1 as wire;
use crate::{BUNDLE, Inbound, Kind, Listener, MOST_AHEAD, Resource, ServedEndpoint, decode, words};

/// The cluster without endpoints that clients which cannot answer a share of a route by themselves are
/// sent to; every server of such routes serves it.
pub const NOWHERE: &str = "maglor/no-backend";

/// Why something cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// A field that the wire needs is absent.
    #[error("{kind} `{name}`: {field} is missing")]
    Missing {
        /// Of which kind the resource is.
        kind: Kind,
        /// Its name, as far as it has one.
        name: String,
        /// Which field.
        field: String,
    },
    /// What was written cannot be read back, so no client could.
    #[error(transparent)]
    Unreadable(#[from] decode::DecodeError),
    /// A block cannot be written as a value.
    #[error("{kind} `{name}`: {source}")]
    Words {
        /// Of which kind the resource is.
        kind: Kind,
        /// Its name.
        name: String,
        /// Why not.
        source: serde_yaml::Error,
    },
}

/// A cluster. One with endpoints carries them; one without gets them by EDS, under its own name.
///
/// # Errors
/// When it has no name.
pub fn cluster(raw: &raw::Cluster) -> Result<Resource, EncodeError> {
    let (name, message) = cluster::encode(raw)?;
    Ok(resource(Kind::Cluster, &name, &message))
}

/// The endpoints of a cluster, by IP address.
///
/// # Errors
/// When one has no address.
pub fn endpoints(cluster: &str, all: &[ServedEndpoint]) -> Result<Resource, EncodeError> {
    let message = endpoints::encode(cluster, all)?;
    Ok(resource(Kind::Endpoints, cluster, &message))
}

/// A table of routes.
///
/// # Errors
/// When it has no name, or a virtual host no domain, or a route no action.
pub fn routes(raw: &raw::RouteTable) -> Result<Resource, EncodeError> {
    let (name, message) = route::encode(raw)?;
    Ok(resource(Kind::Routes, &name, &message))
}

/// How requests, or connections, to a name are routed (gRFC A27's API listener).
///
/// # Errors
/// As [`routes`], for a table inside.
pub fn listener(name: &str, listener: &Listener) -> Result<Resource, EncodeError> {
    let message = listener::encode(name, listener)?;
    Ok(resource(Kind::Listener, name, &message))
}

/// The roots that workloads of the mesh trust.
#[must_use]
pub fn bundle(bundle: &TrustBundle) -> Resource {
    let roots = bundle.certificates().iter();
    let message = identity::TrustBundle {
        name: BUNDLE.to_owned(),
        roots: roots.map(|root| Bytes::copy_from_slice(root)).collect(),
    };
    resource(Kind::Bundle, BUNDLE, &message)
}

/// What a workload's inbound listener does, and which targets it is to ask for before anybody calls them; beyond
/// [`MOST_AHEAD`] they are left out.
///
/// # Errors
/// When it cannot be written as text.
pub fn inbound(name: &str, inbound: &Inbound, ahead: &[String]) -> Result<Resource, EncodeError> {
    let words = words::text(inbound).map_err(|source| EncodeError::Words {
        kind: Kind::Inbound,
        name: name.to_owned(),
        source,
    })?;
    let name = name.to_owned();
    let ahead = ahead.iter().take(MOST_AHEAD).cloned().collect();
    let message = wire::Inbound { name, words, ahead };
    Ok(resource(Kind::Inbound, &message.name, &message))
}

fn resource(kind: Kind, name: &str, message: &impl Message) -> Resource {
    Resource {
        kind,
        name: name.into(),
        body: Bytes::from(message.encode_to_vec()),
    }
}

/// A message with its type.
fn any(type_url: &str, message: &impl Message) -> Any {
    Any {
        type_url: type_url.to_owned(),
        value: message.encode_to_vec(),
    }
}

/// The stream that the resource itself came by.
fn ads() -> core::ConfigSource {
    let ads = core::AggregatedConfigSource {};
    core::ConfigSource {
        resource_api_version: core::ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(ads)),
    }
}
