//! The supported parts of `HTTPRouteSpec` and `GRPCRouteSpec`, most of which are the same.

use maglor_config::header_format;
use maglor_config::raw::{self, OneOrMany, Pairs};
use serde::Deserialize;

use super::{Backend, Unsupported};
use crate::index::facts::Key;

pub(super) const GATEWAY: &str = "gateway.networking.k8s.io";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) parent_refs: Vec<ParentRef>,
    pub(super) rules: Vec<Rule>,
    pub(super) hostnames: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ParentRef {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) port: Option<u16>,
    pub(super) section_name: Option<String>,
}

impl Default for ParentRef {
    fn default() -> Self {
        Self {
            group: GATEWAY.to_owned(),
            kind: "Gateway".to_owned(),
            namespace: None,
            name: String::new(),
            port: None,
            section_name: None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    pub(super) name: Option<String>,
    pub(super) matches: Vec<Match>,
    pub(super) filters: Vec<Filter>,
    pub(super) backend_refs: Vec<BackendRef>,
    pub(super) timeouts: Timeouts,
    pub(super) retry: Option<Retry>,
    pub(super) session_persistence: Option<serde_json::Value>,
}

/// `HTTPRouteRetry` (experimental channel; GEP-1731).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Retry {
    pub(super) codes: Vec<u32>,
    pub(super) attempts: Option<u32>,
    pub(super) backoff: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Timeouts {
    pub(super) request: Option<String>,
    pub(super) backend_request: Option<String>,
}

/// A match. `path` and `query_params` exist only in HTTPRoute, where `method` is a text.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Match {
    pub(super) path: Option<ValueMatch>,
    pub(super) headers: Vec<ValueMatch>,
    pub(super) query_params: Vec<ValueMatch>,
    pub(super) method: Option<Method>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Method {
    Http(String),
    Grpc(GrpcMethod),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GrpcMethod {
    pub(super) r#type: Option<String>,
    pub(super) service: Option<String>,
    pub(super) method: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ValueMatch {
    pub(super) r#type: Option<String>,
    pub(super) name: String,
    pub(super) value: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Filter {
    pub(super) r#type: String,
    pub(super) request_header_modifier: Option<HeaderModifier>,
    pub(super) response_header_modifier: Option<HeaderModifier>,
    pub(super) request_mirror: Option<Mirror>,
    pub(super) request_redirect: Option<Redirect>,
    pub(super) url_rewrite: Option<Rewrite>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HeaderModifier {
    set: Vec<Header>,
    add: Vec<Header>,
    remove: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Header {
    name: String,
    value: String,
}

/// Returns the first of all entries with equivalent names, with its index. The others are ignored
/// (`HTTPHeaderMatch.name`, `HTTPHeader.name`).
pub(super) fn first_of_each<T>(
    list: &[T],
    name: impl Fn(&T) -> &str,
) -> impl Iterator<Item = (usize, &T)> {
    let named = move |one: &T, other: &T| name(one).eq_ignore_ascii_case(name(other));
    let each = list.iter().enumerate();
    each.filter(move |(at, one)| !list[..*at].iter().any(|other| named(one, other)))
}

/// Reports the unsupported fields of a `spec`.
pub(in crate::index::facts) fn unread(
    spec: &serde_json::Value,
    found: &mut impl FnMut(&serde_ignored::Path<'_>),
) {
    drop(serde_ignored::deserialize::<_, _, Spec>(spec, |path| {
        found(&path);
    }));
}

/// Returns the message for an unsupported filter type, which suggests an alternative.
pub(super) fn unsupported_filter(kind: &str) -> String {
    let alternative = match kind {
        "CORS" => {
            "; answer CORS in the application, or set the headers with a ResponseHeaderModifier"
        }
        "ExternalAuth" => "; use an AuthorizationPolicy, or authorize in the application",
        _ => "",
    };
    format!("the filter `{kind}` is not supported{alternative}")
}

impl From<&HeaderModifier> for raw::HeaderRules {
    fn from(modifier: &HeaderModifier) -> Self {
        let pairs = |list: &[Header]| -> Vec<(String, String)> {
            first_of_each(list, |header| &header.name)
                .map(|(_, header)| (header.name.clone(), header.value.clone()))
                .collect()
        };
        let (set, add) = (pairs(&modifier.set), pairs(&modifier.add));
        let one = |(name, value)| (name, OneOrMany(vec![value]));
        Self {
            remove: (!modifier.remove.is_empty()).then(|| OneOrMany(modifier.remove.clone())),
            set: (!set.is_empty()).then_some(Pairs(set)),
            add: (!add.is_empty()).then(|| Pairs(add.into_iter().map(one).collect())),
        }
    }
}

/// Reads header changes. Values are literal in the Gateway API; an Envoy format string is an error, because it was
/// probably meant to be evaluated.
pub(super) fn changes(
    modifier: Option<&HeaderModifier>,
    path: &str,
) -> Result<Option<raw::HeaderRules>, Unsupported> {
    let rules: Option<raw::HeaderRules> = modifier.map(Into::into);
    let set = rules.iter().flat_map(|rules| &rules.set);
    let set = set
        .flat_map(|pairs| &pairs.0)
        .map(|(_, value)| ("set", value));
    let add = rules.iter().flat_map(|rules| &rules.add);
    let add = add.flat_map(|pairs| &pairs.0);
    let add = add.flat_map(|(_, values)| values.0.iter().map(|value| ("add", value)));
    for (field, value) in set.chain(add) {
        if let Some(command) = header_format::command(value) {
            let path = format!("{path}.{field}");
            return Err(Unsupported::new(&path, header_format::refusal(command)));
        }
    }
    Ok(rules)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Mirror {
    pub(super) backend_ref: BackendRef,
    percent: Option<u32>,
    fraction: Option<Fraction>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Fraction {
    numerator: u32,
    denominator: Option<u32>,
}

impl Mirror {
    /// Returns the percentage of requests.
    pub(super) fn percent(&self) -> f64 {
        match (&self.fraction, self.percent) {
            (Some(fraction), _) => {
                let whole = f64::from(fraction.denominator.unwrap_or(100).max(1));
                (f64::from(fraction.numerator) / whole * 100.0).min(100.0)
            }
            (None, Some(percent)) => f64::from(percent.min(100)),
            (None, None) => 100.0,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Redirect {
    scheme: Option<String>,
    hostname: Option<String>,
    path: Option<PathModifier>,
    port: Option<u16>,
    status_code: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PathModifier {
    replace_full_path: Option<String>,
    replace_prefix_match: Option<String>,
}

impl PathModifier {
    /// Returns the replacement of a prefix; an empty one is equivalent to `/` (`HTTPPathModifier.replacePrefixMatch`,
    /// the table).
    fn prefix(&self) -> Option<String> {
        let prefix = self.replace_prefix_match.as_deref()?;
        Some(if prefix.is_empty() { "/" } else { prefix }.to_owned())
    }
}

impl From<&Redirect> for raw::Redirect {
    fn from(redirect: &Redirect) -> Self {
        let path = redirect.path.as_ref();
        // If no port is set, it is the default of the new scheme, or the request's port if the scheme is unchanged.
        let port = redirect.port.or(match redirect.scheme.as_deref() {
            Some("http") => Some(80),
            Some("https") => Some(443),
            _ => None,
        });
        Self {
            status: Some(redirect.status_code.unwrap_or(302)),
            scheme: redirect.scheme.clone(),
            host: redirect.hostname.clone(),
            port: port.map(u32::from),
            path: path.and_then(|path| path.replace_full_path.clone()),
            prefix: path.and_then(PathModifier::prefix),
            strip_query: None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rewrite {
    hostname: Option<String>,
    path: Option<PathModifier>,
}

impl From<&Rewrite> for raw::Rewrite {
    fn from(rewrite: &Rewrite) -> Self {
        let path = rewrite.path.as_ref();
        Self {
            host: rewrite.hostname.clone(),
            path: path.and_then(|path| path.replace_full_path.clone()),
            prefix: path.and_then(PathModifier::prefix),
            ..Self::default()
        }
    }
}

impl Backend {
    /// Reads the filters of one backend, of which only header changes are supported.
    pub(super) fn filters(
        &mut self,
        filters: &[Filter],
        path: &str,
        errors: &mut Vec<Unsupported>,
    ) {
        let mut read = |modifier: Option<&HeaderModifier>, field: String| {
            let read = changes(modifier, &field);
            read.map_err(|error| errors.push(error)).ok().flatten()
        };
        for (i, filter) in filters.iter().enumerate() {
            match filter.r#type.as_str() {
                "RequestHeaderModifier" => {
                    let field = format!("{path}[{i}].requestHeaderModifier");
                    self.request_headers = read(filter.request_header_modifier.as_ref(), field);
                }
                "ResponseHeaderModifier" => {
                    let field = format!("{path}[{i}].responseHeaderModifier");
                    self.response_headers = read(filter.response_header_modifier.as_ref(), field);
                }
                _ => {}
            }
        }
        let known = ["RequestHeaderModifier", "ResponseHeaderModifier"];
        for (i, filter) in filters.iter().enumerate() {
            if !known.contains(&filter.r#type.as_str()) {
                let what = format!(
                    "the filter `{}` of one backend is not supported",
                    filter.r#type
                );
                errors.push(Unsupported::new(&format!("{path}[{i}].type"), what));
            }
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BackendRef {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) port: Option<u16>,
    pub(super) weight: u32,
    pub(super) filters: Vec<Filter>,
}

impl Default for BackendRef {
    fn default() -> Self {
        Self {
            group: String::new(),
            kind: "Service".to_owned(),
            namespace: None,
            name: String::new(),
            port: None,
            weight: 1,
            filters: Vec::new(),
        }
    }
}

impl BackendRef {
    pub(super) fn backend(&self, namespace: &str) -> Backend {
        let namespace = self.namespace.as_deref().unwrap_or(namespace);
        let service = self.group.is_empty() && self.kind == "Service";
        Backend {
            service: service.then(|| Key::new(namespace, &self.name)),
            port: self.port,
            callers_port: false,
            subset: None,
            weight: self.weight,
            request_headers: None,
            response_headers: None,
            text: format!("{} {namespace}/{}", self.kind, self.name),
        }
    }
}
