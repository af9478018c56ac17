//! Reads matches, and determines the precedence of overlapping ones.

use maglor_config::raw;

use super::resource::{GrpcMethod, Match, Method, ValueMatch, first_of_each};
use super::{RouteKind, Unsupported};

/// The specificity of a match, with the most important part first (`HTTPRouteRule.matches`, `GRPCRouteRule.matches`).
/// The greater value takes precedence.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Precedence {
    /// 3 for an exact path, 2 for a prefix, 1 for a regular expression, whose position is implementation-specific.
    path: u8,
    /// Number of characters of the path, or of the service and method.
    characters: usize,
    method: bool,
    headers: usize,
    query: usize,
}

/// Returns the match of a rule without matches.
pub(super) fn anything(kind: RouteKind) -> (Precedence, raw::RouteMatch) {
    let all = || {
        raw::Short(raw::PathMatch {
            prefix: Some("/".to_owned()),
            ..raw::PathMatch::default()
        })
    };
    let matches = raw::RouteMatch {
        path: (kind == RouteKind::Http).then(all),
        grpc: (kind == RouteKind::Grpc).then_some(true),
        ..raw::RouteMatch::default()
    };
    let path = u8::from(kind == RouteKind::Http) * 2;
    let precedence = Precedence {
        path,
        characters: usize::from(path > 0),
        ..Precedence::default()
    };
    (precedence, matches)
}

pub(super) fn read(
    kind: RouteKind,
    one: &Match,
    path: &str,
) -> Result<(Precedence, raw::RouteMatch), Unsupported> {
    let (mut precedence, mut matches) = anything(kind);
    match (kind, &one.method) {
        (_, None) => {}
        (RouteKind::Http | RouteKind::Istio, Some(Method::Http(method))) => {
            matches.methods = Some(raw::OneOrMany(vec![method.clone()]));
            precedence.method = true;
        }
        (RouteKind::Grpc, Some(Method::Grpc(method))) => {
            grpc_method(method, &mut precedence, &mut matches, path)?;
        }
        (RouteKind::Http | RouteKind::Istio, Some(Method::Grpc(_))) => {
            let what = "an HTTP method must be a string such as `GET`";
            return Err(Unsupported::new(&format!("{path}.method"), what));
        }
        (RouteKind::Grpc, Some(Method::Http(_))) => {
            let what = "a gRPC method must be written as `{service, method}`";
            return Err(Unsupported::new(&format!("{path}.method"), what));
        }
    }
    if kind == RouteKind::Http
        && let Some(condition) = &one.path
    {
        http_path(condition, &mut precedence, &mut matches, path)?;
    }
    for (i, header) in first_of_each(&one.headers, |header| &header.name) {
        let (exact, regex) = value(header, &format!("{path}.headers[{i}]"))?;
        matches.headers.push(raw::HeaderMatch {
            name: Some(header.name.clone()),
            exact,
            regex,
            ..raw::HeaderMatch::default()
        });
    }
    for (i, query) in one.query_params.iter().enumerate() {
        let (exact, regex) = value(query, &format!("{path}.queryParams[{i}]"))?;
        matches.query.push(raw::QueryMatch {
            name: Some(query.name.clone()),
            exact,
            regex,
            ..raw::QueryMatch::default()
        });
    }
    precedence.headers = matches.headers.len();
    precedence.query = matches.query.len();
    Ok((precedence, matches))
}

fn http_path(
    condition: &ValueMatch,
    precedence: &mut Precedence,
    matches: &mut raw::RouteMatch,
    path: &str,
) -> Result<(), Unsupported> {
    let value = condition.value.clone().unwrap_or_else(|| "/".to_owned());
    precedence.characters = value.chars().count();
    let read = match condition.r#type.as_deref() {
        Some("Exact") => {
            precedence.path = 3;
            raw::PathMatch {
                exact: Some(value),
                ..raw::PathMatch::default()
            }
        }
        None | Some("PathPrefix") => {
            precedence.path = 2;
            // `/api/` and `/api` are equivalent in the Gateway API.
            match value.trim_end_matches('/') {
                "" => return Ok(()), // Equivalent to `anything`.
                prefix => raw::PathMatch {
                    prefix: Some(prefix.to_owned()),
                    ..raw::PathMatch::default()
                },
            }
        }
        Some("RegularExpression") => {
            precedence.path = 1;
            raw::PathMatch {
                regex: Some(value),
                ..raw::PathMatch::default()
            }
        }
        Some(other) => return Err(unknown_type(other, &format!("{path}.path"))),
    };
    matches.path = Some(raw::Short(read));
    Ok(())
}

fn grpc_method(
    method: &GrpcMethod,
    precedence: &mut Precedence,
    matches: &mut raw::RouteMatch,
    path: &str,
) -> Result<(), Unsupported> {
    let (service, name) = (method.service.as_deref(), method.method.as_deref());
    let characters = |text: Option<&str>| text.map_or(0, |text| text.chars().count());
    precedence.characters = characters(service) * 1000 + characters(name);
    let exact = match method.r#type.as_deref() {
        None | Some("Exact") => true,
        Some("RegularExpression") => false,
        Some(other) => return Err(unknown_type(other, &format!("{path}.method"))),
    };
    precedence.path = if exact { 3 } else { 1 };
    let read = match (exact, service, name) {
        (_, None, None) => return Ok(()),
        (true, Some(service), Some(name)) => raw::PathMatch {
            exact: Some(format!("/{service}/{name}")),
            ..raw::PathMatch::default()
        },
        (true, Some(service), None) => raw::PathMatch {
            prefix: Some(format!("/{service}/")),
            ..raw::PathMatch::default()
        },
        (true, None, Some(name)) => raw::PathMatch {
            regex: Some(format!("/[^/]+/{}", escaped(name))),
            ..raw::PathMatch::default()
        },
        (false, service, name) => raw::PathMatch {
            regex: Some(format!(
                "/(?:{})/(?:{})",
                service.unwrap_or("[^/]+"),
                name.unwrap_or("[^/]+")
            )),
            ..raw::PathMatch::default()
        },
    };
    matches.path = Some(raw::Short(read));
    Ok(())
}

/// Returns a regular expression that matches only this text.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_alphanumeric() && c != '_' {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Returns the field `exact` or `regex` of a condition on a value.
fn value(
    condition: &ValueMatch,
    path: &str,
) -> Result<(Option<String>, Option<String>), Unsupported> {
    let value = condition.value.clone().unwrap_or_default();
    match condition.r#type.as_deref() {
        None | Some("Exact") => Ok((Some(value), None)),
        Some("RegularExpression") => Ok((None, Some(value))),
        Some(other) => Err(unknown_type(other, path)),
    }
}

fn unknown_type(word: &str, path: &str) -> Unsupported {
    let what = format!("the type `{word}` is not supported");
    Unsupported::new(&format!("{path}.type"), what)
}
