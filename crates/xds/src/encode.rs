//! Converts the configuration into Envoy's types.
//!
//! Envoy's own fields are used wherever they exist, so that a stock Envoy or gRPC behaves the same, or as similarly as
//! it can. All other fields are sent as `filter_metadata["maglor.dev"]`, which [`crate::decode`] merges back.

mod cluster;
mod endpoints;
mod guard;
mod headers;
mod listener;
mod route;

pub(crate) use guard::outlier;
pub(crate) use route::retry;

use bytes::Bytes;
use maglor_config::raw;
use maglor_identity::TrustBundle;
use prost::Message;
use prost_types::Any;

use crate::proto::envoy::config::core::v3::{self as core, config_source::ConfigSourceSpecifier};
use crate::proto::maglor::identity::v1 as identity;
use crate::proto::maglor::proxy::v1 as wire;
use crate::{
    BUNDLE, Inbound, Kind, Listener, MOST_AHEAD, Resource, ServedEndpoint, decode, maglor_metadata,
};

/// The name of a cluster without endpoints, to which clients that cannot answer a share of the requests themselves route
/// that share. Every server with such routes serves the cluster.
pub const NOWHERE: &str = "maglor/no-backend";

/// The reason why a resource cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// A required field is absent.
    #[error("{kind} `{name}`: {field} is missing")]
    Missing {
        /// The kind of the resource.
        kind: Kind,
        /// The name of the resource; empty if it has none.
        name: String,
        /// The missing field.
        field: String,
    },
    /// The encoded resource cannot be decoded, so no client could decode it.
    #[error(transparent)]
    Unreadable(#[from] decode::DecodeError),
    /// A block cannot be written as metadata.
    #[error("{kind} `{name}`: {source}")]
    Words {
        /// The kind of the resource.
        kind: Kind,
        /// The name of the resource; empty if it has none.
        name: String,
        /// The error of the YAML writer.
        source: serde_yaml::Error,
    },
}

/// Encodes a cluster. Its endpoints are included if there are any; otherwise EDS provides them, under the name of the
/// cluster.
///
/// # Errors
/// If the cluster has no name.
pub fn cluster(raw: &raw::Cluster) -> Result<Resource, EncodeError> {
    let (name, message) = cluster::encode(raw)?;
    Ok(resource(Kind::Cluster, &name, &message))
}

/// Encodes the endpoints of a cluster, by IP address.
///
/// # Errors
/// If an endpoint has no address.
pub fn endpoints(cluster: &str, all: &[ServedEndpoint]) -> Result<Resource, EncodeError> {
    let message = endpoints::encode(cluster, all)?;
    Ok(resource(Kind::Endpoints, cluster, &message))
}

/// Encodes a route table.
///
/// # Errors
/// If the table has no name, a virtual host has no domain, or a route has no action.
pub fn routes(raw: &raw::RouteTable) -> Result<Resource, EncodeError> {
    let (name, message) = route::encode(raw)?;
    Ok(resource(Kind::Routes, &name, &message))
}

/// Encodes a listener: the routing of requests or connections to a name (gRFC A27's API listener).
///
/// # Errors
/// As those of [`routes`], for an inline table.
pub fn listener(name: &str, listener: &Listener) -> Result<Resource, EncodeError> {
    let message = listener::encode(name, listener)?;
    Ok(resource(Kind::Listener, name, &message))
}

/// Encodes the trust bundle of the mesh.
#[must_use]
pub fn bundle(bundle: &TrustBundle) -> Resource {
    let roots = bundle.certificates().iter();
    let message = identity::TrustBundle {
        name: BUNDLE.to_owned(),
        roots: roots.map(|root| Bytes::copy_from_slice(root)).collect(),
    };
    resource(Kind::Bundle, BUNDLE, &message)
}

/// Encodes the settings of a workload's inbound listener, and the targets to which the workload subscribes ahead of the
/// first call. Targets beyond [`MOST_AHEAD`] are omitted.
///
/// # Errors
/// If the settings cannot be written as text.
pub fn inbound(name: &str, inbound: &Inbound, ahead: &[String]) -> Result<Resource, EncodeError> {
    let words = maglor_metadata::text(inbound).map_err(|source| EncodeError::Words {
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

/// Wraps a message together with its type.
fn any(type_url: &str, message: &impl Message) -> Any {
    Any {
        type_url: type_url.to_owned(),
        value: message.encode_to_vec(),
    }
}

/// Returns the config source for resources on the same stream.
fn ads() -> core::ConfigSource {
    let ads = core::AggregatedConfigSource {};
    core::ConfigSource {
        resource_api_version: core::ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(ads)),
    }
}
