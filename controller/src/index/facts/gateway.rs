//! Facts of Gateways and related resources (Gateway API v1): classes, grants, and the certificates of listeners.

use std::collections::BTreeMap;
use std::sync::Arc;

use data_encoding::BASE64;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use serde_json::Value;

use super::{Key, Meta, ReadError, part};

/// `spec.controllerName` of the classes whose Gateways this mesh serves.
pub const GATEWAY_CONTROLLER: &str = "maglor.dev/gateway";
/// The label of all objects created for a Gateway (GEP-1762); its value is the Gateway's name.
pub const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// A GatewayClass.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GatewayClass {
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Name of the controller for Gateways of the class.
    pub controller: String,
    /// Whether the class has parameters, which are not supported.
    pub has_parameters: bool,
}

/// A Gateway.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Gateway {
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Name of the Gateway's class.
    pub class: String,
    /// The listeners, in the order of the resource.
    pub listeners: Vec<Listener>,
    /// Whether the Gateway requests addresses.
    pub has_addresses: bool,
    /// Whether the Gateway has parameters, which are not supported.
    pub has_parameters: bool,
}

/// A listener of a Gateway.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Listener {
    /// Name of the listener, unique in the Gateway.
    pub name: String,
    /// Host of the listener's requests; `None` for all hosts.
    pub hostname: Option<String>,
    /// The port that clients connect to.
    pub port: u16,
    /// Protocol of the listener.
    pub protocol: ListenerProtocol,
    /// The namespaces whose routes the listener accepts.
    pub namespaces: RouteNamespaces,
    /// The kinds of routes that the listener accepts; `None` for all kinds that its protocol allows.
    pub kinds: Option<Vec<RouteKindRef>>,
    /// Certificates for HTTPS.
    pub certificates: Vec<Reference>,
    /// `tls.mode` if it is not `Terminate`, the only supported mode.
    pub odd_tls_mode: Option<String>,
    /// Whether clients must present certificates.
    pub wants_clients_certificates: bool,
}

/// Protocol of a listener.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum ListenerProtocol {
    /// `HTTP`.
    #[default]
    Http,
    /// `HTTPS`.
    Https,
    /// Any other protocol.
    Other(String),
}

/// The namespaces whose routes a listener accepts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum RouteNamespaces {
    /// All namespaces.
    All,
    /// No namespace.
    None,
    /// The Gateway's own namespace.
    #[default]
    Same,
    /// Namespaces with certain labels.
    Selector(Selector),
}

/// `metav1.LabelSelector`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
struct Expression {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Selector {
    /// Returns whether the selector matches these labels.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let there = |(name, value): (&String, &String)| labels.get(name) == Some(value);
        let holds = |one: &Expression| {
            let value = labels.get(&one.key);
            let listed = value.is_some_and(|value| one.values.contains(value));
            match one.operator.as_str() {
                "DoesNotExist" => value.is_none(),
                "Exists" => value.is_some(),
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        };
        self.match_labels.iter().all(there) && self.match_expressions.iter().all(holds)
    }
}

/// A kind of routes.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct RouteKindRef {
    /// API group of the kind; absent for the Gateway API's group.
    pub group: Option<String>,
    /// Name of the kind, such as `HTTPRoute` or `GRPCRoute`.
    pub kind: String,
}

impl RouteKindRef {
    /// Returns whether the kind is supported.
    #[must_use]
    pub fn is_known(&self) -> bool {
        let own = self
            .group
            .as_deref()
            .is_none_or(|group| group == GATEWAY_GROUP);
        own && matches!(self.kind.as_str(), "GRPCRoute" | "HTTPRoute")
    }
}

/// A reference to a resource of another kind.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reference {
    /// The API group; empty for the core group.
    pub group: String,
    /// Kind of the resource.
    pub kind: String,
    /// Namespace and name of the resource.
    pub key: Key,
}

/// A permission for references from other namespaces to objects of the grant's namespace.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct ReferenceGrant {
    from: Vec<GrantFrom>,
    to: Vec<GrantTo>,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
struct GrantFrom {
    group: String,
    kind: String,
    namespace: String,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
struct GrantTo {
    group: String,
    kind: String,
    name: Option<String>,
}

impl ReferenceGrant {
    /// Returns whether resources of a Gateway API kind in a namespace may refer to a resource of the core group.
    #[must_use]
    pub fn permits(&self, from: (&str, &str), to: (&str, &str)) -> bool {
        let (kind, namespace) = from;
        let who = |one: &GrantFrom| {
            one.group == GATEWAY_GROUP && one.kind == kind && one.namespace == namespace
        };
        let what = |one: &GrantTo| {
            let named = one.name.as_deref().filter(|name| !name.is_empty());
            one.group.is_empty() && one.kind == to.0 && named.is_none_or(|name| name == to.1)
        };
        self.from.iter().any(who) && self.to.iter().any(what)
    }
}

/// A Secret with a certificate.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret {
    /// The chain and key as PEM, or why they are invalid.
    pub certificate: Result<Arc<(String, String)>, String>,
}

/// The private key is omitted.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClassSpec {
    controller_name: String,
    parameters_ref: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    gateway_class_name: String,
    listeners: Vec<ListenerSpec>,
    addresses: Vec<Value>,
    infrastructure: Infrastructure,
    tls: GatewayTls,
}

/// The TLS settings for all HTTPS listeners of a Gateway.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GatewayTls {
    frontend: Frontend,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Frontend {
    default: Validated,
    per_port: Vec<OfPort>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OfPort {
    port: u16,
    tls: Validated,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Validated {
    validation: Option<Value>,
}

impl Frontend {
    /// Returns whether clients of a port must present certificates.
    fn validates(&self, port: u16) -> bool {
        let own = self.per_port.iter().find(|one| one.port == port);
        let tls = own.map_or(&self.default, |own| &own.tls);
        tls.validation.is_some()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Infrastructure {
    parameters_ref: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListenerSpec {
    name: String,
    hostname: Option<String>,
    port: u16,
    protocol: String,
    tls: Option<Tls>,
    allowed_routes: Option<AllowedRoutes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Tls {
    mode: Option<String>,
    certificate_refs: Vec<SecretRef>,
    frontend_validation: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SecretRef {
    group: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AllowedRoutes {
    namespaces: Option<Namespaces>,
    kinds: Vec<RouteKindRef>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Namespaces {
    from: Option<String>,
    selector: Option<Selector>,
}

/// Reports the unsupported fields of a Gateway's `spec`.
pub(super) fn unread(spec: &Value, found: &mut impl FnMut(&serde_ignored::Path<'_>)) {
    drop(serde_ignored::deserialize::<_, _, Spec>(spec, |path| {
        found(&path);
    }));
}

/// Like [`unread`], for a GatewayClass.
pub(super) fn unread_of_class(spec: &Value, found: &mut impl FnMut(&serde_ignored::Path<'_>)) {
    drop(serde_ignored::deserialize::<_, _, ClassSpec>(
        spec,
        |path| {
            found(&path);
        },
    ));
}

/// Like [`unread`], for a ReferenceGrant.
pub(super) fn unread_of_grant(spec: &Value, found: &mut impl FnMut(&serde_ignored::Path<'_>)) {
    drop(serde_ignored::deserialize::<_, _, ReferenceGrant>(
        spec,
        |path| {
            found(&path);
        },
    ));
}

impl GatewayClass {
    pub(super) fn read(meta: &Meta, value: &Value) -> Result<Self, ReadError> {
        let spec: ClassSpec = part(value, "spec")?;
        Ok(Self {
            generation: meta.generation,
            controller: spec.controller_name,
            has_parameters: spec.parameters_ref.is_some(),
        })
    }
}

impl Gateway {
    pub(super) fn read(meta: &Meta, value: &Value) -> Result<Self, ReadError> {
        let spec: Spec = part(value, "spec")?;
        let frontend = spec.tls.frontend;
        let listeners = spec.listeners.into_iter().map(|one| {
            let mut listener = one.listener(&meta.namespace);
            let https = listener.protocol == ListenerProtocol::Https;
            listener.wants_clients_certificates |= https && frontend.validates(listener.port);
            listener
        });
        Ok(Self {
            generation: meta.generation,
            class: spec.gateway_class_name,
            listeners: listeners.collect(),
            has_addresses: !spec.addresses.is_empty(),
            has_parameters: spec.infrastructure.parameters_ref.is_some(),
        })
    }
}

impl ListenerSpec {
    fn listener(self, namespace: &str) -> Listener {
        let allowed = self.allowed_routes.unwrap_or_default();
        let namespaces = allowed.namespaces.unwrap_or_default();
        let tls = self.tls.unwrap_or_default();
        let certificate = |one: SecretRef| Reference {
            group: one.group.unwrap_or_default(),
            kind: one.kind.unwrap_or_else(|| "Secret".to_owned()),
            key: Key::new(one.namespace.as_deref().unwrap_or(namespace), &one.name),
        };
        Listener {
            name: self.name,
            hostname: self
                .hostname
                .filter(|name| !name.is_empty())
                .map(|name| name.to_ascii_lowercase()),
            port: self.port,
            protocol: match self.protocol.as_str() {
                "HTTP" => ListenerProtocol::Http,
                "HTTPS" => ListenerProtocol::Https,
                _ => ListenerProtocol::Other(self.protocol),
            },
            namespaces: match namespaces.from.as_deref() {
                None | Some("Same") => RouteNamespaces::Same,
                Some("All") => RouteNamespaces::All,
                Some("Selector") => {
                    RouteNamespaces::Selector(namespaces.selector.unwrap_or_default())
                }
                Some(_) => RouteNamespaces::None,
            },
            kinds: (!allowed.kinds.is_empty()).then_some(allowed.kinds),
            certificates: tls.certificate_refs.into_iter().map(certificate).collect(),
            wants_clients_certificates: tls.frontend_validation.is_some(),
            odd_tls_mode: tls.mode.filter(|mode| mode != "Terminate"),
        }
    }
}

impl ReferenceGrant {
    pub(super) fn read(value: &Value) -> Result<Self, ReadError> {
        part(value, "spec")
    }
}

impl Secret {
    pub(super) fn read(value: &Value) -> Self {
        let text = |name: &str| {
            let encoded = match &value["data"][name] {
                Value::Null => Some(""),
                encoded => encoded.as_str(),
            };
            let bytes = encoded.and_then(|encoded| BASE64.decode(encoded.as_bytes()).ok());
            let bytes = bytes.ok_or_else(|| format!("`{name}` is not base64"))?;
            String::from_utf8(bytes).map_err(|_| format!("`{name}` is not PEM"))
        };
        let certificate = text("tls.crt").and_then(|chain| Ok((chain, text("tls.key")?)));
        let certificate = certificate
            .and_then(|(chain, key)| usable(&chain, &key).map(|()| Arc::new((chain, key))));
        Self { certificate }
    }
}

/// Checks that a server can present the chain and that the key matches, because a proxy would otherwise reject its
/// whole configuration.
fn usable(chain: &str, key: &str) -> Result<(), String> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
    let certificates = certificates.map_err(|error| format!("`tls.crt`: {error}"))?;
    let leaf = certificates
        .first()
        .ok_or("`tls.crt` contains no certificate")?;
    maglor_identity::x509::parse(leaf).ok_or("`tls.crt` contains an invalid certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
    let key = key.map_err(|error| format!("`tls.key`: {error}"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = config.with_no_client_auth();
    config
        .with_single_cert(certificates, key)
        .map(drop)
        .map_err(|error| format!("`tls.crt` and `tls.key`: {error}"))
}

/// Returns why a text is not a valid `Hostname` of the Gateway API; `None` if it is. Valid are DNS names, which may
/// have `*` as their first label, but no addresses or ports.
#[must_use]
pub fn hostname_fault(text: &str) -> Option<String> {
    const LONGEST: usize = 253;
    const LONGEST_LABEL: usize = 63;
    let name = text.strip_prefix("*.").unwrap_or(text);
    let word = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=LONGEST_LABEL).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_name = text.len() <= LONGEST && name.split('.').all(word);
    let is_address = name
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    (!is_name || is_address).then(|| {
        let shown: String = text.chars().take(60).collect();
        format!(
            "`{}` is not a host name; use a name such as `shop.example` or `*.shop.example`",
            shown.escape_debug()
        )
    })
}

#[cfg(test)]
mod tests;
