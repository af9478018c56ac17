//! Encodes the match of a route.

use maglor_config::raw::{self, StringMatch};

use crate::empty_value::matches_empty;
use crate::proto::envoy::config::core::v3::RuntimeFractionalPercent;
use crate::proto::envoy::config::route::v3::{
    HeaderMatcher, QueryParameterMatcher, RouteMatch,
    header_matcher::HeaderMatchSpecifier,
    query_parameter_matcher::QueryParameterMatchSpecifier,
    route_match::{GrpcRouteMatchOptions, PathSpecifier},
};
use crate::proto::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use crate::proto::envoy::r#type::v3::FractionalPercent;

pub(super) fn encode(raw: Option<&raw::RouteMatch>) -> RouteMatch {
    let raw = raw.cloned().unwrap_or_default();
    let methods = raw.methods.as_ref().map_or(&[][..], |list| &list.0);
    let headers = raw.headers.iter().map(header);
    RouteMatch {
        headers: method(methods).into_iter().chain(headers).collect(),
        query_parameters: raw.query.iter().map(query).collect(),
        grpc: (raw.grpc == Some(true)).then_some(GrpcRouteMatchOptions {}),
        path_specifier: Some(path(raw.path.map(|path| path.0).as_ref())),
        ..RouteMatch::default()
    }
}

/// Adds a condition that is never true, so that a client that ignores our metadata does not match unintended requests.
pub(super) fn never(conditions: &mut RouteMatch) {
    conditions.runtime_fraction = Some(RuntimeFractionalPercent {
        default_value: Some(FractionalPercent::default()),
    });
}

/// Encodes the path condition; our prefixes match only whole segments.
fn path(raw: Option<&raw::PathMatch>) -> PathSpecifier {
    match raw {
        Some(raw::PathMatch {
            exact: Some(exact), ..
        }) => PathSpecifier::Path(exact.clone()),
        Some(raw::PathMatch {
            regex: Some(regex), ..
        }) => PathSpecifier::SafeRegex(expression(regex)),
        Some(raw::PathMatch {
            prefix: Some(prefix),
            ..
        }) if prefix.ends_with('/') => PathSpecifier::Prefix(prefix.clone()),
        Some(raw::PathMatch {
            prefix: Some(prefix),
            ..
        }) => PathSpecifier::PathSeparatedPrefix(prefix.clone()),
        _ => PathSpecifier::Prefix("/".to_owned()),
    }
}

fn expression(regex: &str) -> RegexMatcher {
    RegexMatcher {
        regex: regex.to_owned(),
    }
}

fn method(methods: &[String]) -> Option<HeaderMatcher> {
    let pattern = match methods {
        [] => return None,
        [one] => MatchPattern::Exact(one.clone()),
        several => MatchPattern::SafeRegex(expression(&several.join("|"))),
    };
    Some(HeaderMatcher {
        name: ":method".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(text(pattern))),
        invert_match: false,
        treat_missing_header_as_empty: false,
    })
}

/// Encodes a condition on a header. Here, an absent header satisfies an inverted condition on a value. In Envoy, it does
/// if it counts as empty and the empty value does not satisfy the condition; otherwise the inversion is sent only in the
/// metadata.
pub(super) fn header(raw: &raw::HeaderMatch) -> HeaderMatcher {
    let value = raw.value();
    let (specifier, invert, missing_is_empty) = match value.present {
        Some(present) => (
            HeaderMatchSpecifier::PresentMatch(present),
            value.invert,
            false,
        ),
        None => {
            let invert = value.invert;
            let pattern = pattern(value);
            let invert = invert && !matches_empty(&pattern);
            let specifier = HeaderMatchSpecifier::StringMatch(text(pattern));
            (specifier, invert, invert)
        }
    };
    HeaderMatcher {
        name: raw.name.clone().unwrap_or_default(),
        header_match_specifier: Some(specifier),
        invert_match: invert,
        treat_missing_header_as_empty: missing_is_empty,
    }
}

/// Encodes a condition on a query parameter; an inverted condition is sent only in the metadata.
fn query(raw: &raw::QueryMatch) -> QueryParameterMatcher {
    let value = raw.value();
    let specifier = match value.present {
        Some(present) => QueryParameterMatchSpecifier::PresentMatch(present),
        None => QueryParameterMatchSpecifier::StringMatch(text(pattern(value))),
    };
    QueryParameterMatcher {
        name: raw.name.clone().unwrap_or_default(),
        query_parameter_match_specifier: Some(specifier),
    }
}

fn text(pattern: MatchPattern) -> StringMatcher {
    StringMatcher {
        ignore_case: false,
        match_pattern: Some(pattern),
    }
}

fn pattern(value: StringMatch<'_>) -> MatchPattern {
    let owned = str::to_owned;
    None.or(value.prefix.map(owned).map(MatchPattern::Prefix))
        .or(value.suffix.map(owned).map(MatchPattern::Suffix))
        .or(value.contains.map(owned).map(MatchPattern::Contains))
        .or(value.regex.map(expression).map(MatchPattern::SafeRegex))
        .unwrap_or_else(|| MatchPattern::Exact(value.exact.unwrap_or_default().to_owned()))
}
