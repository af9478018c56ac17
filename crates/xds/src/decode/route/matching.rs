//! Decodes the match of a route.

use maglor_config::raw::{self, OneOrMany, PathMatch, Short};

use super::{Fault, fraction};
use crate::empty_value::matches_empty;
use crate::proto::envoy::config::route::v3::{
    HeaderMatcher, QueryParameterMatcher, RouteMatch, header_matcher::HeaderMatchSpecifier,
    query_parameter_matcher::QueryParameterMatchSpecifier, route_match::PathSpecifier,
};
use crate::proto::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

/// Rejects unsupported conditions.
pub(super) fn refuse(message: Option<&RouteMatch>) -> Result<(), Fault> {
    let fraction = message.and_then(|message| message.runtime_fraction.as_ref());
    let share = fraction.and_then(|fraction| fraction.default_value.as_ref());
    match share.is_none_or(fraction::is_all) && fraction.is_none_or(|f| f.default_value.is_some()) {
        true => Ok(()),
        false => Err(Fault::unsupported("match.runtime_fraction")),
    }
}

/// Decodes the conditions; `None` if every request matches.
pub(super) fn decode(message: Option<&RouteMatch>) -> Result<Option<raw::RouteMatch>, Fault> {
    let Some(message) = message else {
        return Err(Fault::new("match", "the field is missing"));
    };
    if message.case_sensitive == Some(false) {
        return Err(Fault::unsupported("match.case_sensitive"));
    }
    let mut raw = raw::RouteMatch {
        path: path(message.path_specifier.as_ref())?.map(Short),
        grpc: message.grpc.map(|_| true),
        ..raw::RouteMatch::default()
    };
    for (i, matcher) in message.headers.iter().enumerate() {
        let place = format!("match.headers[{i}]");
        match matcher.name.as_str() {
            ":method" if raw.methods.is_none() => {
                raw.methods = Some(methods(matcher).map_err(|fault| fault.within(&place))?);
            }
            // Pseudo-headers are not matched as headers here.
            name if name.starts_with(':') => return Err(Fault::unsupported(place)),
            name => {
                if needs_header(matcher) {
                    raw.headers.push(raw::HeaderMatch {
                        name: Some(name.to_owned()),
                        present: Some(true),
                        ..raw::HeaderMatch::default()
                    });
                }
                let condition = header(matcher).map_err(|fault| fault.within(&place))?;
                raw.headers.push(condition);
            }
        }
    }
    for (i, matcher) in message.query_parameters.iter().enumerate() {
        let place = format!("match.query_parameters[{i}]");
        raw.query
            .push(query(matcher).map_err(|fault| fault.within(&place))?);
    }
    let everything = raw.path.is_none()
        && raw.methods.is_none()
        && raw.headers.is_empty()
        && raw.query.is_empty()
        && raw.grpc.is_none();
    Ok((!everything).then_some(raw))
}

/// Decodes the path condition; `None` if any path matches.
fn path(specifier: Option<&PathSpecifier>) -> Result<Option<PathMatch>, Fault> {
    let with = |prefix: &str| PathMatch {
        prefix: Some(prefix.to_owned()),
        ..PathMatch::default()
    };
    Ok(Some(match specifier {
        None => return Err(Fault::new("match.path_specifier", "the field is missing")),
        Some(PathSpecifier::ConnectMatcher(_)) => {
            return Err(Fault::unsupported("match.connect_matcher"));
        }
        Some(PathSpecifier::Path(exact)) => PathMatch {
            exact: Some(exact.clone()),
            ..PathMatch::default()
        },
        Some(PathSpecifier::SafeRegex(regex)) => PathMatch {
            regex: Some(regex.regex.clone()),
            ..PathMatch::default()
        },
        Some(PathSpecifier::Prefix(prefix)) if matches!(prefix.as_str(), "" | "/") => {
            return Ok(None);
        }
        Some(PathSpecifier::Prefix(prefix)) if prefix.ends_with('/') => with(prefix),
        // Envoy's prefix may end within a segment, ours may not.
        Some(PathSpecifier::Prefix(prefix)) => PathMatch {
            regex: Some(format!("{}.*", literally(prefix))),
            ..PathMatch::default()
        },
        Some(PathSpecifier::PathSeparatedPrefix(prefix)) => with(prefix),
    }))
}

/// Returns a regular expression that matches only this text.
fn literally(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_punctuation() && !matches!(c, '/' | '-' | '_') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Decodes a method such as `GET`, or several in a regular expression such as `GET|POST`.
fn methods(matcher: &HeaderMatcher) -> Result<OneOrMany, Fault> {
    let fault = || Fault::unsupported("header_match_specifier");
    let Some(HeaderMatchSpecifier::StringMatch(text)) = &matcher.header_match_specifier else {
        return Err(fault());
    };
    if matcher.invert_match || text.ignore_case {
        return Err(fault());
    }
    let word =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-');
    match &text.match_pattern {
        Some(MatchPattern::Exact(method)) => Ok(OneOrMany(vec![method.clone()])),
        Some(MatchPattern::SafeRegex(regex)) if regex.regex.split('|').all(word) => Ok(OneOrMany(
            regex.regex.split('|').map(str::to_owned).collect(),
        )),
        _ => Err(fault()),
    }
}

/// Decodes a condition on a header.
pub(super) fn header(matcher: &HeaderMatcher) -> Result<raw::HeaderMatch, Fault> {
    absence(matcher)?;
    let mut raw = raw::HeaderMatch {
        name: Some(matcher.name.clone()),
        invert: matcher.invert_match.then_some(true),
        ..raw::HeaderMatch::default()
    };
    match &matcher.header_match_specifier {
        None => raw.present = Some(true),
        Some(HeaderMatchSpecifier::PresentMatch(present)) => raw.present = Some(*present),
        // Deprecated forms of `string_match`, and numbers: without an error, any value would match.
        Some(
            HeaderMatchSpecifier::ExactMatch(_)
            | HeaderMatchSpecifier::PrefixMatch(_)
            | HeaderMatchSpecifier::SuffixMatch(_)
            | HeaderMatchSpecifier::ContainsMatch(_)
            | HeaderMatchSpecifier::SafeRegexMatch(_),
        ) => return Err(Fault::new("headers", "deprecated; use string_match")),
        Some(HeaderMatchSpecifier::RangeMatch(_)) => {
            return Err(Fault::unsupported("headers.range_match"));
        }
        Some(HeaderMatchSpecifier::StringMatch(text)) => {
            let raw = &mut raw;
            let (exact, prefix, suffix) = (&mut raw.exact, &mut raw.prefix, &mut raw.suffix);
            let (contains, regex) = (&mut raw.contains, &mut raw.regex);
            condition(text, [exact, prefix, suffix, contains, regex])?;
        }
    }
    Ok(raw)
}

/// Returns whether a condition needs the header in Envoy but not here, where an absent header satisfies inverted
/// conditions on values.
pub(super) fn needs_header(matcher: &HeaderMatcher) -> bool {
    let of_value = matches!(
        matcher.header_match_specifier,
        Some(HeaderMatchSpecifier::StringMatch(_))
    );
    of_value && matcher.invert_match && !matcher.treat_missing_header_as_empty
}

/// Rejects a condition that an absent header satisfies in Envoy but not here.
fn absence(matcher: &HeaderMatcher) -> Result<(), Fault> {
    let empty = matcher.treat_missing_header_as_empty;
    let pattern = match &matcher.header_match_specifier {
        Some(HeaderMatchSpecifier::StringMatch(text)) => text.match_pattern.as_ref(),
        _ if empty => return Err(Fault::unsupported("treat_missing_header_as_empty")),
        _ => None,
    };
    let Some(pattern) = pattern else {
        return Ok(());
    };
    if empty && matches_empty(pattern) {
        return Err(Fault::new(
            "treat_missing_header_as_empty",
            "not supported for a condition that the empty value satisfies",
        ));
    }
    Ok(())
}

fn query(matcher: &QueryParameterMatcher) -> Result<raw::QueryMatch, Fault> {
    let mut raw = raw::QueryMatch {
        name: Some(matcher.name.clone()),
        ..raw::QueryMatch::default()
    };
    match &matcher.query_parameter_match_specifier {
        None => raw.present = Some(true),
        Some(QueryParameterMatchSpecifier::PresentMatch(present)) => raw.present = Some(*present),
        Some(QueryParameterMatchSpecifier::StringMatch(text)) => {
            let raw = &mut raw;
            let (exact, prefix, suffix) = (&mut raw.exact, &mut raw.prefix, &mut raw.suffix);
            let (contains, regex) = (&mut raw.contains, &mut raw.regex);
            condition(text, [exact, prefix, suffix, contains, regex])?;
        }
    }
    Ok(raw)
}

fn pattern(text: &StringMatcher) -> Result<&MatchPattern, Fault> {
    if text.ignore_case {
        return Err(Fault::unsupported("string_match.ignore_case"));
    }
    let pattern = text.match_pattern.as_ref();
    pattern.ok_or_else(|| Fault::unsupported("string_match.match_pattern"))
}

/// Writes a string matcher to its slot, of `exact`, `prefix`, `suffix`, `contains` and `regex`.
fn condition(text: &StringMatcher, slots: [&mut Option<String>; 5]) -> Result<(), Fault> {
    let [exact, prefix, suffix, contains, regex] = slots;
    let (slot, value) = match pattern(text)? {
        MatchPattern::Exact(text) => (exact, text),
        MatchPattern::Prefix(text) => (prefix, text),
        MatchPattern::Suffix(text) => (suffix, text),
        MatchPattern::Contains(text) => (contains, text),
        MatchPattern::SafeRegex(pattern) => (regex, &pattern.regex),
    };
    *slot = Some(value.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::r#type::matcher::v3::RegexMatcher;
    use crate::proto::envoy::r#type::v3::Int64Range;

    #[test]
    fn conditions_that_are_not_supported_do_not_match_any_value() {
        let decoded = |specifier| {
            header(&HeaderMatcher {
                name: "x".to_owned(),
                header_match_specifier: specifier,
                ..HeaderMatcher::default()
            })
        };
        let range = Int64Range { start: 10, end: 20 };
        for unsupported in [
            HeaderMatchSpecifier::ExactMatch("a".to_owned()),
            HeaderMatchSpecifier::PrefixMatch("a".to_owned()),
            HeaderMatchSpecifier::SuffixMatch("a".to_owned()),
            HeaderMatchSpecifier::ContainsMatch("a".to_owned()),
            HeaderMatchSpecifier::SafeRegexMatch(RegexMatcher {
                regex: "a".to_owned(),
            }),
            HeaderMatchSpecifier::RangeMatch(range),
        ] {
            assert!(
                decoded(Some(unsupported.clone())).is_err(),
                "{unsupported:?}"
            );
        }
        assert_eq!(decoded(None).ok().and_then(|one| one.present), Some(true));
    }
}
