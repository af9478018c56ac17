//! The facts that the index keeps of each kind of object: the few fields on which proxies or rules depend.
//!
//! An [`Object`] is read from the JSON of a resource, from an API server or from a file. A change of any other part
//! of a resource (its status, or an unused label) does not change the facts, and therefore has no effect on later
//! stages.

pub mod gateway;
pub mod istio;
pub mod node;
pub mod policy;
pub mod route;
pub mod service;
pub mod slice;
pub mod workload;

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::names::{is_label, is_subdomain};

pub use gateway::{Gateway, GatewayClass, ReferenceGrant, Secret};
pub use node::{Namespace, Node};
pub use policy::{AuthorizationPolicy, Checked, MeshConfig, TrafficPolicy};
pub use route::Route;
pub use service::{Protocol, Reach, Service, ServicePort};
pub use slice::{Serving, Slice, SliceEndpoint};
pub use workload::{Amounts, Workload};

/// Namespace and name of a resource; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// Namespace of the resource.
    pub namespace: String,
    /// Name of the resource.
    pub name: String,
}

impl Key {
    /// Creates the key of a resource.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The kinds of resources in the index.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// `maglor.dev/v1alpha1`.
    AuthorizationPolicy,
    /// `networking.istio.io/v1`.
    DestinationRule,
    /// `discovery.k8s.io/v1`.
    EndpointSlice,
    /// `gateway.networking.k8s.io/v1`.
    Gateway,
    /// `gateway.networking.k8s.io/v1`.
    GatewayClass,
    /// `gateway.networking.k8s.io/v1`.
    GrpcRoute,
    /// `gateway.networking.k8s.io/v1`.
    HttpRoute,
    /// `AuthorizationPolicy` of `security.istio.io/v1`.
    IstioAuthorizationPolicy,
    /// `maglor.dev/v1alpha1`.
    MeshConfig,
    /// `v1`.
    Namespace,
    /// `v1`.
    Node,
    /// `security.istio.io/v1`.
    PeerAuthentication,
    /// `v1`.
    Pod,
    /// `gateway.networking.k8s.io/v1beta1`.
    ReferenceGrant,
    /// `v1`, of type `kubernetes.io/tls`: a certificate of a Gateway.
    Secret,
    /// `v1`.
    Service,
    /// `telemetry.istio.io/v1`.
    Telemetry,
    /// `maglor.dev/v1alpha1`.
    TrafficPolicy,
    /// `networking.istio.io/v1`.
    VirtualService,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 19] = [
        Self::AuthorizationPolicy,
        Self::DestinationRule,
        Self::EndpointSlice,
        Self::Gateway,
        Self::GatewayClass,
        Self::GrpcRoute,
        Self::HttpRoute,
        Self::IstioAuthorizationPolicy,
        Self::MeshConfig,
        Self::Namespace,
        Self::Node,
        Self::PeerAuthentication,
        Self::Pod,
        Self::ReferenceGrant,
        Self::Secret,
        Self::Service,
        Self::Telemetry,
        Self::TrafficPolicy,
        Self::VirtualService,
    ];

    /// Returns the `apiVersion`, the `kind` and the plural of the kind.
    #[must_use]
    pub fn names(self) -> (&'static str, &'static str, &'static str) {
        const GATEWAY: &str = "gateway.networking.k8s.io/v1";
        const GRANT: &str = "gateway.networking.k8s.io/v1beta1";
        const MAGLOR: &str = "maglor.dev/v1alpha1";
        const NETWORKING: &str = "networking.istio.io/v1";
        const SECURITY: &str = "security.istio.io/v1";
        match self {
            Self::DestinationRule => (NETWORKING, "DestinationRule", "destinationrules"),
            Self::IstioAuthorizationPolicy => {
                (SECURITY, "AuthorizationPolicy", "authorizationpolicies")
            }
            Self::PeerAuthentication => (SECURITY, "PeerAuthentication", "peerauthentications"),
            Self::Telemetry => ("telemetry.istio.io/v1", "Telemetry", "telemetries"),
            Self::VirtualService => (NETWORKING, "VirtualService", "virtualservices"),
            Self::AuthorizationPolicy => (MAGLOR, "AuthorizationPolicy", "authorizationpolicies"),
            Self::EndpointSlice => ("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
            Self::Gateway => (GATEWAY, "Gateway", "gateways"),
            Self::GatewayClass => (GATEWAY, "GatewayClass", "gatewayclasses"),
            Self::GrpcRoute => (GATEWAY, "GRPCRoute", "grpcroutes"),
            Self::HttpRoute => (GATEWAY, "HTTPRoute", "httproutes"),
            Self::MeshConfig => (MAGLOR, "MeshConfig", "meshconfigs"),
            Self::Namespace => ("v1", "Namespace", "namespaces"),
            Self::Node => ("v1", "Node", "nodes"),
            Self::Pod => ("v1", "Pod", "pods"),
            Self::ReferenceGrant => (GRANT, "ReferenceGrant", "referencegrants"),
            Self::Secret => ("v1", "Secret", "secrets"),
            Self::Service => ("v1", "Service", "services"),
            Self::TrafficPolicy => (MAGLOR, "TrafficPolicy", "trafficpolicies"),
        }
    }

    /// Returns the kind with this `apiVersion` and `kind`; `None` if it is not in the index.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| {
            let (version, name, _) = one.names();
            name == kind && (version == api_version || one.has_version(api_version))
        })
    }

    /// Returns whether this is another, equivalent version of the kind.
    fn has_version(self, api_version: &str) -> bool {
        let (own, _, _) = self.names();
        let (group, version) = api_version.split_once('/').unwrap_or_default();
        let others = match self {
            Self::Gateway | Self::GatewayClass | Self::HttpRoute => &["v1beta1"][..],
            Self::GrpcRoute => &["v1alpha2"],
            Self::ReferenceGrant => &["v1", "v1alpha2"],
            _ if group.ends_with(".istio.io") => &maglor_manifests::istio::VERSIONS[..],
            _ => &[],
        };
        own.split_once('/').is_some_and(|own| own.0 == group) && others.contains(&version)
    }

    /// Returns the unique label of the kind in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::IstioAuthorizationPolicy => "IstioAuthorizationPolicy",
            other => other.names().1,
        }
    }

    /// Returns whether resources of this kind are namespaced.
    #[must_use]
    pub fn is_namespaced(self) -> bool {
        !matches!(
            self,
            Self::GatewayClass | Self::MeshConfig | Self::Namespace | Self::Node
        )
    }

    /// Returns whether the controller writes the status of resources of this kind.
    #[must_use]
    pub fn has_status(self) -> bool {
        matches!(
            self,
            Self::AuthorizationPolicy
                | Self::DestinationRule
                | Self::Gateway
                | Self::GatewayClass
                | Self::GrpcRoute
                | Self::HttpRoute
                | Self::IstioAuthorizationPolicy
                | Self::MeshConfig
                | Self::PeerAuthentication
                | Self::Telemetry
                | Self::TrafficPolicy
                | Self::VirtualService
        )
    }
}

/// The fields of `metadata` that the index uses.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// `metadata.name`.
    #[serde(default)]
    pub name: String,
    /// `metadata.namespace`.
    #[serde(default)]
    pub namespace: String,
    /// `metadata.generation`, which changes with the `spec`.
    #[serde(default)]
    pub generation: Option<i64>,
    /// `metadata.creationTimestamp` in RFC 3339 format, so that the order of texts is the order of times.
    #[serde(default)]
    pub creation_timestamp: Option<String>,
    /// `metadata.labels`.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// The age of a resource: ordered by time of creation, then by name (Gateway API, "Conflicts").
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Age {
    created: Option<String>,
    key: Key,
}

impl Meta {
    /// Returns the age for comparisons. A resource without a time of creation (in a file) counts as the oldest.
    #[must_use]
    pub fn age(&self) -> Age {
        Age {
            created: self.creation_timestamp.clone(),
            key: Key::new(&self.namespace, &self.name),
        }
    }
}

/// A resource as the index keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Kind of the resource.
    pub kind: Kind,
    /// Namespace and name of the resource.
    pub key: Key,
    /// Facts of the resource.
    pub facts: Facts,
}

/// The facts of a resource, by kind.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "downcast by kind")]
pub enum Facts {
    AuthorizationPolicy(AuthorizationPolicy),
    Gateway(Gateway),
    GatewayClass(GatewayClass),
    Istio(istio::Facts),
    MeshConfig(Box<MeshConfig>),
    Namespace(Namespace),
    Node(Node),
    ReferenceGrant(ReferenceGrant),
    Route(Route),
    Secret(Secret),
    Service(Service),
    Slice(Slice),
    TrafficPolicy(Box<TrafficPolicy>),
    Workload(Workload),
}

/// Reason why a resource cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// The resource has no name.
    #[error("metadata.name is missing")]
    Nameless,
    /// The kind is not in the index.
    #[error("apiVersion `{api_version}`, kind `{kind}` is not supported")]
    UnknownKind {
        /// `apiVersion` of the resource.
        api_version: String,
        /// `kind` of the resource.
        kind: String,
    },
    /// A part does not have the structure that the kind requires.
    #[error("{part}: {message}")]
    Shape {
        /// Name of the part, such as `spec` or `metadata`.
        part: &'static str,
        /// What is wrong with the part.
        message: String,
    },
}

impl Object {
    /// Reads a resource of any kind.
    ///
    /// An invalid `spec` of a route or of one of the mesh's own kinds is not an error but part of the facts, and is
    /// reported in the status.
    ///
    /// # Errors
    /// If the kind is unknown, or if Kubernetes would not have stored the resource.
    pub fn read(value: &Value) -> Result<Self, ReadError> {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let kind =
            Kind::of(&api_version, &kind).ok_or(ReadError::UnknownKind { api_version, kind })?;
        Self::read_as(kind, value)
    }

    /// Reads a resource of a known kind, because lists of an API server omit the kind of their items.
    ///
    /// # Errors
    /// As [`Object::read`].
    pub fn read_as(kind: Kind, value: &Value) -> Result<Self, ReadError> {
        let mut meta: Meta = part(value, "metadata")?;
        if meta.name.is_empty() {
            return Err(ReadError::Nameless);
        }
        // A directory may contain names that an API server would reject.
        let names = [
            ("name", is_subdomain(&meta.name)),
            (
                "namespace",
                meta.namespace.is_empty() || is_label(&meta.namespace),
            ),
        ];
        if let Some((field, _)) = names.into_iter().find(|(_, is_right)| !is_right) {
            return Err(ReadError::Shape {
                part: "metadata",
                message: format!(
                    "{field}: must be lower-case letters, digits, `-` and `.` (RFC 1123)"
                ),
            });
        }
        if !kind.is_namespaced() {
            meta.namespace.clear();
        } else if meta.namespace.is_empty() {
            "default".clone_into(&mut meta.namespace);
        }
        let key = Key::new(&meta.namespace, &meta.name);
        let facts = match kind {
            Kind::AuthorizationPolicy => {
                Facts::AuthorizationPolicy(AuthorizationPolicy::read(&meta, value))
            }
            Kind::DestinationRule => Facts::Istio(istio::Facts::DestinationRule(Box::new(
                istio::destination_rule(&meta, value),
            ))),
            Kind::IstioAuthorizationPolicy => Facts::Istio(istio::Facts::AuthorizationPolicy(
                istio::authorization_policy(&meta, value),
            )),
            Kind::PeerAuthentication => Facts::Istio(istio::Facts::PeerAuthentication(
                istio::peer_authentication(&meta, value),
            )),
            Kind::Telemetry => {
                Facts::Istio(istio::Facts::Telemetry(istio::telemetry(&meta, value)))
            }
            Kind::VirtualService => Facts::Route(istio::virtual_service(&meta, value)),
            Kind::EndpointSlice => Facts::Slice(Slice::read(&meta, value)?),
            Kind::Gateway => Facts::Gateway(Gateway::read(&meta, value)?),
            Kind::GatewayClass => Facts::GatewayClass(GatewayClass::read(&meta, value)?),
            Kind::GrpcRoute => Facts::Route(Route::grpc(&meta, value)),
            Kind::HttpRoute => Facts::Route(Route::http(&meta, value)),
            Kind::MeshConfig => Facts::MeshConfig(Box::new(MeshConfig::read(&meta, value))),
            Kind::Namespace => Facts::Namespace(Namespace::read(&meta)),
            Kind::Node => Facts::Node(Node::read(&meta, value)?),
            Kind::Pod => Facts::Workload(Workload::read(meta, value)?),
            Kind::ReferenceGrant => Facts::ReferenceGrant(ReferenceGrant::read(value)?),
            Kind::Secret => Facts::Secret(Secret::read(value)),
            Kind::Service => Facts::Service(Service::read(&meta, value)?),
            Kind::TrafficPolicy => {
                Facts::TrafficPolicy(Box::new(TrafficPolicy::read(&meta, value)))
            }
        };
        Ok(Self { kind, key, facts })
    }
}

/// Returns the unsupported fields of a resource of the Gateway API, such as `spec.rules[0].timeouts.idle`.
#[must_use]
pub fn unread(value: &Value) -> Vec<String> {
    let kind = |name: &str| value[name].as_str().unwrap_or_default();
    let spec = value.get("spec").unwrap_or(&Value::Null);
    let mut found = Vec::new();
    // `?` denotes an optional value.
    let mut take = |path: &serde_ignored::Path<'_>| found.push(path.to_string().replace(".?", ""));
    match Kind::of(kind("apiVersion"), kind("kind")) {
        Some(Kind::Gateway) => gateway::unread(spec, &mut take),
        Some(Kind::GatewayClass) => gateway::unread_of_class(spec, &mut take),
        Some(Kind::GrpcRoute | Kind::HttpRoute) => route::resource::unread(spec, &mut take),
        Some(Kind::ReferenceGrant) => gateway::unread_of_grant(spec, &mut take),
        _ => {}
    }
    found.retain(|path| {
        let last = path.rsplit('.').next().unwrap_or_default();
        let outer: Vec<&str> = path.split('.').rev().skip(1).collect();
        // The neighbouring fields already contain this information.
        let redundant = matches!(
            (last, outer.as_slice()),
            ("type", ["path", "requestRedirect" | "urlRewrite", ..])
        );
        // The type of the filter is reported if it is not supported.
        let of_filter = matches!(outer.as_slice(), [_, "filters", ..]);
        // The operator copies these to the Gateway's Service and Deployment.
        let carried = matches!(
            path.as_str(),
            "infrastructure.annotations" | "infrastructure.labels"
        );
        !(redundant || of_filter || carried || path == "description")
    });
    let shown = |path: String| {
        path.split('.').fold("spec".to_owned(), |all, part| {
            match part.bytes().all(|byte| byte.is_ascii_digit()) {
                true => format!("{all}[{part}]"),
                false => format!("{all}.{part}"),
            }
        })
    };
    found.into_iter().map(shown).collect()
}

/// Reads a part of a resource. A missing part has its default values.
fn part<T: DeserializeOwned + Default>(value: &Value, name: &'static str) -> Result<T, ReadError> {
    match value.get(name) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => T::deserialize(value).map_err(|error| ReadError::Shape {
            part: name,
            message: error.to_string(),
        }),
    }
}
