//! Decodes the action of a route.

use maglor_config::raw::{self, OneOrMany, Short};

use super::super::{WHOLE_PATH, headers, non_empty, time};
use super::{Fault, fraction, matching};
use crate::encode::retry as encode_retry;
use crate::proto::envoy::config::core::v3::data_source::Specifier;
use crate::proto::envoy::config::route::v3::{
    DirectResponseAction, HeaderMatcher, RedirectAction, RetryPolicy, RouteAction,
    redirect_action::{PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier},
    route::Action,
    route_action::{
        ClusterSpecifier, HashPolicy, HostRewriteSpecifier, RequestMirrorPolicy,
        hash_policy::PolicySpecifier,
    },
    weighted_cluster::ClusterWeight,
};

/// Decodes the action of a route into `raw`.
pub(super) fn decode(action: Option<&Action>, raw: &mut raw::Route) -> Result<(), Fault> {
    match action {
        None => Err(Fault::new("action", "the field is missing")),
        Some(Action::NonForwardingAction(_)) => Err(Fault::unsupported("non_forwarding_action")),
        Some(Action::Redirect(message)) => {
            raw.redirect = Some(redirect(message)?);
            Ok(())
        }
        Some(Action::DirectResponse(message)) => {
            raw.direct_response = Some(direct(message)?);
            Ok(())
        }
        Some(Action::Route(message)) => {
            forward(message, raw).map_err(|fault| fault.within("route"))
        }
    }
}

fn forward(message: &RouteAction, raw: &mut raw::Route) -> Result<(), Fault> {
    match &message.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => raw.cluster = Some(name.clone()),
        Some(ClusterSpecifier::WeightedClusters(weighted)) => {
            for (i, share) in weighted.clusters.iter().enumerate() {
                let place = format!("weighted_clusters.clusters[{i}]");
                let share = self::share(share).map_err(|fault| fault.within(&place));
                raw.clusters.push(share?);
            }
        }
        Some(ClusterSpecifier::ClusterHeader(_)) => {
            return Err(Fault::unsupported("cluster_header"));
        }
        Some(ClusterSpecifier::ClusterSpecifierPlugin(_)) => {
            return Err(Fault::unsupported("cluster_specifier_plugin"));
        }
        None => return Err(Fault::new("cluster_specifier", "the field is missing")),
    }
    raw.rewrite = rewrite(message)?;
    raw.timeout = time("timeout", message.timeout.as_ref())?;
    raw.retry = retry(message.retry_policy.as_ref())?.map(Short);
    for (i, policy) in message.hash_policy.iter().enumerate() {
        let policy = hash_policy(policy);
        raw.hash_policy
            .push(policy.map_err(|fault| fault.within(&format!("hash_policy[{i}]")))?);
    }
    raw.mirror = message.request_mirror_policies.iter().map(mirror).collect();
    Ok(())
}

fn share(message: &ClusterWeight) -> Result<raw::ClusterWeight, Fault> {
    let (add, remove) = (
        &message.request_headers_to_add,
        &message.request_headers_to_remove,
    );
    let request_headers = headers::decode("request_headers", add, remove)?;
    let (add, remove) = (
        &message.response_headers_to_add,
        &message.response_headers_to_remove,
    );
    Ok(raw::ClusterWeight {
        name: Some(message.name.clone()),
        status: None,
        weight: Some(message.weight.unwrap_or(0)),
        request_headers,
        response_headers: headers::decode("response_headers", add, remove)?,
    })
}

fn rewrite(message: &RouteAction) -> Result<Option<raw::Rewrite>, Fault> {
    let mut raw = raw::Rewrite {
        prefix: non_empty(&message.prefix_rewrite),
        ..raw::Rewrite::default()
    };
    if let Some(rewrite) = &message.regex_rewrite {
        let regex = rewrite.pattern.clone().unwrap_or_default().regex;
        let substitution = raw::Rewrite::substitution_from_re2(&rewrite.substitution);
        match regex == WHOLE_PATH && !substitution.contains('$') {
            true => raw.path = Some(substitution),
            false => {
                raw.regex = Some(regex);
                raw.substitution = Some(substitution);
            }
        }
    }
    match &message.host_rewrite_specifier {
        None | Some(HostRewriteSpecifier::AutoHostRewrite(false)) => {}
        Some(HostRewriteSpecifier::AutoHostRewrite(true)) => raw.auto_host = Some(true),
        Some(HostRewriteSpecifier::HostRewriteLiteral(host)) => raw.host = Some(host.clone()),
        Some(HostRewriteSpecifier::HostRewriteHeader(_)) => {
            return Err(Fault::unsupported("host_rewrite_header"));
        }
    }
    let any = raw.prefix.is_some()
        || raw.path.is_some()
        || raw.regex.is_some()
        || raw.host.is_some()
        || raw.auto_host.is_some();
    Ok(any.then_some(raw))
}

/// Decodes retries. `None` is our default; a route without a retry policy retries nothing.
fn retry(message: Option<&RetryPolicy>) -> Result<Option<raw::Retry>, Fault> {
    let Some(message) = message else {
        return Ok(Some(raw::Retry {
            attempts: Some(0),
            ..raw::Retry::default()
        }));
    };
    if *message == encode_retry(None) {
        return Ok(None);
    }
    let headers = message.retriable_headers.iter().map(retriable_header);
    let back_off = match &message.retry_back_off {
        None => None,
        Some(back_off) => Some(raw::BackOff {
            base_interval: time(
                "retry_back_off.base_interval",
                back_off.base_interval.as_ref(),
            )?,
            max_interval: time(
                "retry_back_off.max_interval",
                back_off.max_interval.as_ref(),
            )?,
        }),
    };
    Ok(Some(raw::Retry {
        // Envoy's default.
        attempts: Some(message.num_retries.unwrap_or(1)),
        retry_on: non_empty(&message.retry_on).map(|text| {
            let conditions = text.split(',').map(|word| word.trim().to_owned());
            OneOrMany(conditions.collect())
        }),
        retriable_status_codes: message.retriable_status_codes.clone(),
        retriable_headers: headers.collect::<Result<_, _>>()?,
        non_idempotent: None,
        per_try_timeout: time(
            "retry_policy.per_try_timeout",
            message.per_try_timeout.as_ref(),
        )?,
        back_off,
        max_retry_after: None,
    }))
}

fn retriable_header(matcher: &HeaderMatcher) -> Result<raw::HeaderMatch, Fault> {
    match matching::needs_header(matcher) {
        false => matching::header(matcher),
        // One of the list suffices, so that a second condition cannot express it.
        true => Err(Fault::new(
            "retriable_headers.invert_match",
            "an absent header satisfies an inverted condition here; \
             set treat_missing_header_as_empty: true, with which it also does in Envoy",
        )),
    }
}

fn hash_policy(message: &HashPolicy) -> Result<raw::HashPolicy, Fault> {
    let mut raw = raw::HashPolicy {
        terminal: message.terminal.then_some(true),
        ..raw::HashPolicy::default()
    };
    match &message.policy_specifier {
        Some(PolicySpecifier::Header(header)) if header.header_name == ":path" => {
            raw.path = Some(true);
        }
        Some(PolicySpecifier::Header(header)) => raw.header = Some(header.header_name.clone()),
        Some(PolicySpecifier::Cookie(cookie)) => {
            raw.cookie = Some(Short(raw::Cookie {
                name: non_empty(&cookie.name),
                ttl: time("cookie.ttl", cookie.ttl.as_ref())?,
                path: non_empty(&cookie.path),
            }));
        }
        Some(PolicySpecifier::QueryParameter(query)) => raw.query = Some(query.name.clone()),
        Some(PolicySpecifier::ConnectionProperties(properties)) => {
            raw.source_address = Some(properties.source_ip);
        }
        None => return Err(Fault::unsupported("policy_specifier")),
    }
    Ok(raw)
}

fn mirror(message: &RequestMirrorPolicy) -> Short<raw::Mirror> {
    let fraction = message.runtime_fraction.as_ref();
    let share = fraction.and_then(|fraction| fraction.default_value.as_ref());
    Short(raw::Mirror {
        cluster: Some(message.cluster.clone()),
        percent: share.map(fraction::percent),
    })
}

fn redirect(message: &RedirectAction) -> Result<raw::Redirect, Fault> {
    let status = match RedirectResponseCode::try_from(message.response_code) {
        Ok(RedirectResponseCode::MovedPermanently) => 301,
        Ok(RedirectResponseCode::Found) => 302,
        Ok(RedirectResponseCode::SeeOther) => 303,
        Ok(RedirectResponseCode::TemporaryRedirect) => 307,
        Ok(RedirectResponseCode::PermanentRedirect) => 308,
        Err(_) => return Err(Fault::unsupported("redirect.response_code")),
    };
    let mut raw = raw::Redirect {
        status: (status != 301).then_some(status),
        host: non_empty(&message.host_redirect),
        port: (message.port_redirect > 0).then_some(message.port_redirect),
        strip_query: message.strip_query.then_some(true),
        ..raw::Redirect::default()
    };
    match &message.path_rewrite_specifier {
        None => {}
        Some(PathRewriteSpecifier::PathRedirect(path)) => raw.path = Some(path.clone()),
        Some(PathRewriteSpecifier::PrefixRewrite(prefix)) => raw.prefix = Some(prefix.clone()),
        Some(PathRewriteSpecifier::RegexRewrite(_)) => {
            return Err(Fault::unsupported("redirect.regex_rewrite"));
        }
    }
    match &message.scheme_rewrite_specifier {
        None | Some(SchemeRewriteSpecifier::HttpsRedirect(false)) => {}
        Some(SchemeRewriteSpecifier::HttpsRedirect(true)) => raw.scheme = Some("https".to_owned()),
        Some(SchemeRewriteSpecifier::SchemeRedirect(scheme)) => raw.scheme = non_empty(scheme),
    }
    Ok(raw)
}

fn direct(message: &DirectResponseAction) -> Result<raw::DirectResponse, Fault> {
    let body = match message
        .body
        .as_ref()
        .and_then(|body| body.specifier.as_ref())
    {
        None => None,
        Some(Specifier::InlineString(text)) => Some(text.clone()),
        Some(Specifier::InlineBytes(bytes)) => {
            let text = String::from_utf8(bytes.clone());
            Some(text.map_err(|_| Fault::new("direct_response.body", "not UTF-8"))?)
        }
    };
    Ok(raw::DirectResponse {
        status: Some(message.status),
        body,
        headers: None,
    })
}
