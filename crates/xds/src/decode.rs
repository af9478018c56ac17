//! Converts Envoy's types into the configuration, with the validation of a configuration file.
//!
//! A message can contain features that this proxy does not have. If ignoring such a feature would change behaviour, the
//! resource is rejected: the client reports it (NACK) and keeps the last valid version. The error names the resource and
//! the field. Fields that our subset of the types does not include are in the tables of `decode/unsupported`.

mod cluster;
mod endpoints;
mod guard;
mod headers;
mod listener;
mod route;
mod unsupported;

use maglor_config::{self as config, Errors, raw, resource};
use maglor_identity::TrustBundle;
use prost::Message;

use crate::proto::envoy::config as wire;
use crate::proto::maglor::identity::v1 as identity;
use crate::proto::maglor::proxy::v1 as own;
use crate::{Inbound, Kind, Listener, MOST_AHEAD, ServedEndpoint, maglor_metadata};

/// The regular expression that represents a rewrite of the whole path.
pub(crate) const WHOLE_PATH: &str = "^.+$";

/// The reason why a resource is rejected.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// A field has an invalid or unsupported value.
    #[error("{kind} `{name}`: {field}: {reason}")]
    Field {
        /// The kind of the resource.
        kind: Kind,
        /// The name of the resource.
        name: String,
        /// The name of the field in Envoy.
        field: String,
        /// The reason.
        reason: String,
    },
    /// The resource does not pass the validation of a configuration file.
    #[error("{0}")]
    Invalid(#[from] Errors),
    /// The name in the message differs from the name under which it was sent.
    #[error("{kind} `{name}`: the resource itself is named `{own}`")]
    Name {
        /// The kind of the resource.
        kind: Kind,
        /// The name under which the resource was sent.
        name: String,
        /// The name in the message.
        own: String,
    },
    /// The message cannot be decoded.
    #[error("{kind} `{name}`: {source}")]
    Protobuf {
        /// The kind of the resource.
        kind: Kind,
        /// The name under which the resource was sent.
        name: String,
        /// The error of the decoder.
        source: prost::DecodeError,
    },
    /// The `maglor.dev` metadata is invalid.
    #[error("{kind} `{name}`: metadata `maglor.dev`: {reason}")]
    Words {
        /// The kind of the resource.
        kind: Kind,
        /// The name of the resource.
        name: String,
        /// The reason.
        reason: String,
    },
}

/// An invalid field, with the reason.
struct Fault {
    field: String,
    reason: String,
}

impl Fault {
    fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            reason: reason.into(),
        }
    }

    /// Creates the fault of an unsupported feature.
    fn unsupported(field: impl Into<String>) -> Self {
        Self::new(field, "not supported")
    }

    /// Adds `place` before the path of the field.
    fn within(self, place: &str) -> Self {
        let field = format!("{place}.{}", self.field);
        Self { field, ..self }
    }

    fn of(self, kind: Kind, name: &str) -> DecodeError {
        DecodeError::Field {
            kind,
            name: name.to_owned(),
            field: self.field,
            reason: self.reason,
        }
    }
}

/// A cluster, and the name of its endpoints if EDS provides them.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The configuration of the cluster, without endpoints if EDS provides them.
    pub raw: raw::Cluster,
    /// The EDS name of the endpoints; `None` = the endpoints are part of the cluster.
    pub eds: Option<String>,
}

/// Decodes a cluster.
///
/// # Errors
/// [`DecodeError`]
pub fn cluster(name: &str, body: &[u8]) -> Result<Cluster, DecodeError> {
    let message: wire::cluster::v3::Cluster = parse(Kind::Cluster, name, body)?;
    named(Kind::Cluster, name, &message.name)?;
    supported(Kind::Cluster, name, &unsupported::CLUSTER, body)?;
    let mention = |field: &str| maglor_metadata::mention(message.metadata.as_ref(), field);
    cluster::refuse(&message, &mention).map_err(|fault| fault.of(Kind::Cluster, name))?;
    let eds = cluster::eds(&message).map(str::to_owned);
    let native = native_cluster(&message)?;
    let raw = overlay(Kind::Cluster, name, native, message.metadata.as_ref())?;
    Ok(Cluster { raw, eds })
}

/// Decodes Envoy's own fields.
pub(crate) fn native_cluster(
    message: &wire::cluster::v3::Cluster,
) -> Result<raw::Cluster, DecodeError> {
    cluster::native(message).map_err(|fault| fault.of(Kind::Cluster, &message.name))
}

/// Decodes the endpoints of a cluster.
///
/// # Errors
/// [`DecodeError`]
pub fn endpoints(name: &str, body: &[u8]) -> Result<Vec<ServedEndpoint>, DecodeError> {
    let message: wire::endpoint::v3::ClusterLoadAssignment = parse(Kind::Endpoints, name, body)?;
    named(Kind::Endpoints, name, &message.cluster_name)?;
    supported(Kind::Endpoints, name, &unsupported::ASSIGNMENT, body)?;
    endpoints::decode(&message).map_err(|fault| fault.of(Kind::Endpoints, name))
}

/// Decodes the endpoints of a cluster, and validates those that may get requests.
///
/// # Errors
/// [`DecodeError`]
pub fn usable_endpoints(name: &str, body: &[u8]) -> Result<Vec<config::Endpoint>, DecodeError> {
    let all = endpoints(name, body)?;
    let usable = all
        .into_iter()
        .filter(|e| e.health == crate::Health::Healthy);
    let described: Vec<_> = usable.map(|e| raw::Short(e.described)).collect();
    Ok(resource::endpoints(name, &described)?)
}

/// Decodes a route table.
///
/// # Errors
/// [`DecodeError`]
pub fn routes(name: &str, body: &[u8]) -> Result<raw::RouteTable, DecodeError> {
    let message: wire::route::v3::RouteConfiguration = parse(Kind::Routes, name, body)?;
    named(Kind::Routes, name, &message.name)?;
    supported(Kind::Routes, name, &unsupported::ROUTE_CONFIGURATION, body)?;
    route::decode(&message)
}

/// Decodes Envoy's own fields of the route at `place` in a table.
pub(crate) fn native_route(
    message: &wire::route::v3::Route,
    table: &str,
    place: &str,
) -> Result<raw::Route, DecodeError> {
    route::native(message).map_err(|fault| fault.within(place).of(Kind::Routes, table))
}

/// Decodes a listener: the routing of requests or connections to a name.
///
/// # Errors
/// [`DecodeError`]
pub fn listener(name: &str, body: &[u8]) -> Result<Listener, DecodeError> {
    let message: wire::listener::v3::Listener = parse(Kind::Listener, name, body)?;
    named(Kind::Listener, name, &message.name)?;
    supported(Kind::Listener, name, &unsupported::LISTENER, body)?;
    listener::decode(name, &message)
}

/// Decodes the trust bundle of the mesh; each root must be usable.
///
/// # Errors
/// [`DecodeError`]
pub fn bundle(name: &str, body: &[u8]) -> Result<TrustBundle, DecodeError> {
    let message: identity::TrustBundle = parse(Kind::Bundle, name, body)?;
    named(Kind::Bundle, name, &message.name)?;
    let roots = message.roots.iter().map(|root| root.to_vec());
    TrustBundle::from_der(roots).map_err(|error| DecodeError::Field {
        kind: Kind::Bundle,
        name: name.to_owned(),
        field: "roots".to_owned(),
        reason: error.to_string(),
    })
}

/// Decodes the settings of a workload's inbound listener, and the targets to which the workload subscribes ahead of the
/// first call, at most [`MOST_AHEAD`].
///
/// # Errors
/// [`DecodeError`]
pub fn inbound(name: &str, body: &[u8]) -> Result<(Inbound, Vec<String>), DecodeError> {
    let message: own::Inbound = parse(Kind::Inbound, name, body)?;
    named(Kind::Inbound, name, &message.name)?;
    let inbound = resource::read(&message.words, &format!("inbound `{name}`"))?;
    let mut ahead = message.ahead;
    ahead.truncate(MOST_AHEAD);
    Ok((inbound, ahead))
}

fn parse<M: Message + Default>(kind: Kind, name: &str, body: &[u8]) -> Result<M, DecodeError> {
    M::decode(body).map_err(|source| DecodeError::Protobuf {
        kind,
        name: name.to_owned(),
        source,
    })
}

fn named(kind: Kind, name: &str, own: &str) -> Result<(), DecodeError> {
    if name == own {
        return Ok(());
    }
    Err(DecodeError::Name {
        kind,
        name: name.to_owned(),
        own: own.to_owned(),
    })
}

/// Rejects fields that our subset of the types does not include and that must not be ignored.
fn supported(
    kind: Kind,
    name: &str,
    message: &unsupported::Message,
    body: &[u8],
) -> Result<(), DecodeError> {
    unsupported::refuse(message, body).map_err(|fault| fault.of(kind, name))
}

fn overlay<T: serde::Serialize + serde::de::DeserializeOwned>(
    kind: Kind,
    name: &str,
    native: T,
    metadata: Option<&wire::core::v3::Metadata>,
) -> Result<T, DecodeError> {
    maglor_metadata::overlay(native, maglor_metadata::of(metadata), maglor_metadata::KEY).map_err(
        |error| DecodeError::Words {
            kind,
            name: name.to_owned(),
            reason: error.to_string(),
        },
    )
}

/// Decodes a duration field.
fn time(
    field: &str,
    duration: Option<&prost_types::Duration>,
) -> Result<Option<raw::TimeSpan>, Fault> {
    let span = duration.map(crate::time::decode).transpose();
    span.map_err(|reason| Fault::new(field, reason))
}

/// Returns `None` for an empty text, which means that the field is absent.
fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
