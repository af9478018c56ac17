//! Encodes the action of a route.

use maglor_config::raw;

use super::retry::retry;
use crate::encode::{NOWHERE, headers};
use crate::proto::envoy::config::core::v3::{
    DataSource, RuntimeFractionalPercent, data_source::Specifier,
};
use crate::proto::envoy::config::route::v3::{
    DirectResponseAction, RedirectAction, RouteAction, WeightedCluster,
    redirect_action::{PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier},
    route::Action,
    route_action::{
        ClusterSpecifier, HashPolicy, HostRewriteSpecifier, RequestMirrorPolicy,
        hash_policy::{ConnectionProperties, Cookie, Header, PolicySpecifier, QueryParameter},
    },
    weighted_cluster::ClusterWeight,
};
use crate::proto::envoy::r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher};
use crate::proto::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};
use crate::{decode, time};

/// Encodes the action of a route; `None` if it has none.
pub(super) fn encode(raw: &raw::Route) -> Option<Action> {
    if let Some(raw) = &raw.redirect {
        return Some(Action::Redirect(redirect(raw)));
    }
    if let Some(raw) = &raw.direct_response {
        return Some(Action::DirectResponse(DirectResponseAction {
            status: raw.status.unwrap_or(200),
            body: raw.body.clone().map(|body| DataSource {
                specifier: Some(Specifier::InlineString(body)),
            }),
        }));
    }
    let rewrite = raw.rewrite.clone().unwrap_or_default();
    Some(Action::Route(RouteAction {
        cluster_specifier: Some(clusters(raw)?),
        regex_rewrite: path_rewrite(&rewrite),
        prefix_rewrite: rewrite.prefix.unwrap_or_default(),
        host_rewrite_specifier: match (rewrite.host, rewrite.auto_host) {
            (Some(host), _) => Some(HostRewriteSpecifier::HostRewriteLiteral(host)),
            (None, Some(true)) => Some(HostRewriteSpecifier::AutoHostRewrite(true)),
            (None, _) => None,
        },
        timeout: raw.timeout.map(time::encode),
        retry_policy: Some(retry(raw.retry.as_ref().map(|retry| &retry.0))),
        hash_policy: raw.hash_policy.iter().filter_map(hash_policy).collect(),
        request_mirror_policies: raw.mirror.iter().filter_map(|m| mirror(&m.0)).collect(),
    }))
}

fn clusters(raw: &raw::Route) -> Option<ClusterSpecifier> {
    if let Some(name) = &raw.cluster {
        return Some(ClusterSpecifier::Cluster(name.clone()));
    }
    let clusters: Vec<_> = raw.clusters.iter().map(share).collect();
    let any = !clusters.is_empty();
    any.then_some(ClusterSpecifier::WeightedClusters(WeightedCluster {
        clusters,
    }))
}

fn share(raw: &raw::ClusterWeight) -> ClusterWeight {
    let (request_headers_to_add, request_headers_to_remove) =
        headers::encode(raw.request_headers.as_ref());
    let (response_headers_to_add, response_headers_to_remove) =
        headers::encode(raw.response_headers.as_ref());
    ClusterWeight {
        // Envoy responds with 503 if there is no endpoint, which is nearest to the configured
        // status.
        name: raw.name.clone().unwrap_or_else(|| NOWHERE.to_owned()),
        weight: Some(raw.weight.unwrap_or(1)),
        request_headers_to_add,
        request_headers_to_remove,
        response_headers_to_add,
        response_headers_to_remove,
    }
}

fn path_rewrite(raw: &raw::Rewrite) -> Option<RegexMatchAndSubstitute> {
    let of = |regex: &str, substitution: String| RegexMatchAndSubstitute {
        pattern: Some(RegexMatcher {
            regex: regex.to_owned(),
        }),
        substitution,
    };
    match (&raw.path, &raw.regex) {
        (Some(path), _) => Some(of(decode::WHOLE_PATH, path.replace('\\', "\\\\"))),
        (None, Some(regex)) => {
            let substitution = raw.substitution.as_deref().unwrap_or_default();
            Some(of(regex, to_back_references(substitution)))
        }
        (None, None) => None,
    }
}

/// Converts the references to groups: `$1` and `${1}` → `\1`, `$$` → `$`. Named groups, which Envoy does not support,
/// become empty.
fn to_back_references(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text.chars().peekable());
    while let Some(c) = rest.next() {
        match c {
            '\\' => out.push_str("\\\\"),
            '$' if rest.next_if_eq(&'$').is_some() => out.push('$'),
            '$' => {
                let braced = rest.next_if_eq(&'{').is_some();
                let mut group = String::new();
                while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    group.push(c);
                }
                if braced {
                    rest.next_if_eq(&'}');
                }
                if group.len() == 1 && group.starts_with(|c: char| c.is_ascii_digit()) {
                    out.push('\\');
                    out.push_str(&group);
                }
            }
            c => out.push(c),
        }
    }
    out
}

fn hash_policy(raw: &raw::HashPolicy) -> Option<HashPolicy> {
    let specifier = if let Some(name) = &raw.header {
        PolicySpecifier::Header(Header {
            header_name: name.clone(),
        })
    } else if let Some(raw::Short(cookie)) = &raw.cookie {
        PolicySpecifier::Cookie(Cookie {
            name: cookie.name.clone().unwrap_or_default(),
            ttl: cookie.ttl.map(time::encode),
            path: cookie.path.clone().unwrap_or_default(),
        })
    } else if let Some(name) = &raw.query {
        PolicySpecifier::QueryParameter(QueryParameter { name: name.clone() })
    } else if raw.path == Some(true) {
        // Envoy includes the query, which ours excludes: the nearest there is.
        PolicySpecifier::Header(Header {
            header_name: ":path".to_owned(),
        })
    } else if raw.source_address == Some(true) {
        PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: true })
    } else {
        return None;
    };
    Some(HashPolicy {
        terminal: raw.terminal.unwrap_or(false),
        policy_specifier: Some(specifier),
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the share is clamped to what a million can express"
)]
fn mirror(raw: &raw::Mirror) -> Option<RequestMirrorPolicy> {
    let share = |percent: f64| FractionalPercent {
        numerator: (percent.clamp(0.0, 100.0) * 10_000.0).round() as u32,
        denominator: DenominatorType::Million.into(),
    };
    Some(RequestMirrorPolicy {
        cluster: raw.cluster.clone()?,
        runtime_fraction: raw.percent.map(|percent| RuntimeFractionalPercent {
            default_value: Some(share(percent)),
        }),
    })
}

fn redirect(raw: &raw::Redirect) -> RedirectAction {
    let code = match raw.status {
        Some(302) => RedirectResponseCode::Found,
        Some(303) => RedirectResponseCode::SeeOther,
        Some(307) => RedirectResponseCode::TemporaryRedirect,
        Some(308) => RedirectResponseCode::PermanentRedirect,
        _ => RedirectResponseCode::MovedPermanently,
    };
    RedirectAction {
        host_redirect: raw.host.clone().unwrap_or_default(),
        response_code: code.into(),
        strip_query: raw.strip_query.unwrap_or(false),
        port_redirect: raw.port.unwrap_or(0),
        path_rewrite_specifier: match (&raw.path, &raw.prefix) {
            (Some(path), _) => Some(PathRewriteSpecifier::PathRedirect(path.clone())),
            (None, Some(prefix)) => Some(PathRewriteSpecifier::PrefixRewrite(prefix.clone())),
            (None, None) => None,
        },
        scheme_rewrite_specifier: raw
            .scheme
            .clone()
            .map(SchemeRewriteSpecifier::SchemeRedirect),
    }
}
