//! Suggestions for values of a wrong type.

use super::{foreign_terms, shapes};
use crate::suggest::one_of;
use crate::yaml::{Found, short};

/// Returns a replacement for the value at `path`, where a value of type `expected`, in serde's words, is required.
pub(super) fn for_value(path: &str, expected: &str, found: &Found<'_>) -> Option<String> {
    let (parents, field) = names(path);
    let specific = match found {
        Found::Scalar(text) => scalar(field, &parents, expected, text),
        Found::Mapping(pairs) => mapping(field, expected, pairs),
        Found::List => list(field, expected),
        Found::Nothing => None,
    };
    specific.or_else(|| general(field, expected, found))
}

/// Returns the names of the fields on a path such as `a[0].b.c[1]`, and the last one.
fn names(path: &str) -> (Vec<&str>, &str) {
    let mut names: Vec<_> = path
        .split('.')
        .map(|step| step.split('[').next().unwrap_or_default())
        .collect();
    let last = names.pop().unwrap_or_default();
    (names, last)
}

/// Parses synonyms of true and false, such as `yes` and `no`.
fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "enabled" | "enable" | "y" => Some(true),
        "false" | "no" | "off" | "disabled" | "disable" | "none" | "n" => Some(false),
        _ => None,
    }
}

fn write(field: &str, value: &str) -> Option<String> {
    Some(format!("write `{field}: {value}`"))
}

fn scalar(field: &str, parents: &[&str], expected: &str, text: &str) -> Option<String> {
    if expected == "a boolean" {
        return truth(text).and_then(|truth| write(field, if truth { "true" } else { "false" }));
    }
    if expected.starts_with(['u', 'i', 'f']) && expected.len() <= 5 {
        return number(field, text);
    }
    if truth(text) == Some(false) && !matches!(field, "retry" | "direct_response") {
        return Some(format!(
            "remove the line; an absent `{field}` has the same meaning"
        ));
    }
    item(field, parents, expected, text).or_else(|| members(field, parents, text))
}

/// Returns a replacement where a list or its items are required.
fn item(field: &str, parents: &[&str], expected: &str, text: &str) -> Option<String> {
    let shown = short(text);
    match field {
        "hash_policy" => write(field, &format!("[{}]", hash(text))),
        "endpoints" if expected == "a sequence" => write(field, &format!("[{}]", endpoints(text))),
        "endpoints" => Some(format!("write `{}`", shapes::endpoint(text)?)),
        "clusters" if parents.is_empty() => Some(format!(
            "write `{{name: {shown}, endpoints: [\"HOST:PORT\"]}}`"
        )),
        "clusters" => Some(format!("write `{{name: {shown}}}`")),
        "headers" | "query" => Some(format!("write `{{name: {shown}, present: true}}`")),
        "virtual_hosts" => write(field, "[{domains: [NAME], routes: [{cluster: NAME}]}]"),
        "routes" => Some(format!("write `{{cluster: {shown}}}`")),
        _ => None,
    }
}

/// Returns a replacement where a mapping is required.
fn members(field: &str, parents: &[&str], text: &str) -> Option<String> {
    let shown = short(text);
    let yes = truth(text) == Some(true);
    let is_number = text.parse::<u64>().is_ok();
    let is_time = shapes::time(text).is_some() && !is_number;
    let is_path = text.starts_with('/');
    let value = match field {
        "admin" => {
            let address = shapes::listen(text).unwrap_or_else(|| "IP:PORT".into());
            // It has no authentication.
            let local = match is_number || text.starts_with(':') {
                true => address.replace("0.0.0.0", "127.0.0.1"),
                false => address,
            };
            format!("{{address: {local}}}")
        }
        "access_log" if yes => "{}".into(),
        "access_log" => format!("{{path: {shown}}}"),
        "tls" if yes && parents.contains(&"clusters") => "{}".into(),
        "tls" => "{certificate: FILE, private_key: FILE}".into(),
        "retry" if yes => "{attempts: 2}".into(),
        "retry" if truth(text) == Some(false) => "{attempts: 0}".into(),
        "retry" if is_number => format!("{{attempts: {shown}}}"),
        "redirect" => return Some(redirect(text)),
        "direct_response" if is_number => format!("{{status: {shown}}}"),
        "direct_response" => format!("{{status: 200, body: \"{shown}\"}}"),
        "sticky" if yes => "{cookie: NAME}` or `{header: NAME}".into(),
        "sticky" => format!("{{cookie: {shown}}}` or `{{header: {shown}}}"),
        "health_check" => "/healthz` or `{tcp: {}}".into(),
        "match" if is_path => format!("{{path: {shown}}}"),
        "match" => "{path: /PATH}".into(),
        "rewrite" if is_path => format!("{{prefix: {shown}}}"),
        "rewrite" => format!("{{host: {shown}}}"),
        "rate_limit" => shapes::rate(text)?,
        "outlier_ejection" | "circuit_breaker" | "concurrency_limit" | "slow_start"
        | "retry_budget" | "back_off" | "load_reports" | "discovery"
            if yes =>
        {
            "{}".into()
        }
        "slow_start" if is_time => format!("{{window: {shown}}}"),
        "dns_refresh" if is_time => format!("{{min: {shown}, max: {shown}}}"),
        "back_off" if is_time => format!("{{base_interval: {shown}}}"),
        "limits" if is_number => format!("{{max_requests: {shown}}}"),
        "circuit_breaker" if is_number => format!("{{consecutive_failures: {shown}}}"),
        "outlier_ejection" if is_number => format!("{{consecutive_5xx: {shown}}}"),
        "concurrency_limit" if is_number => format!("{{max_limit: {shown}}}"),
        "retry_budget" => {
            let percent = shapes::percent(text).unwrap_or(text);
            format!("{{percent: {}}}", percent.parse::<f64>().ok()?)
        }
        "fault" | "abort" if is_number => match field {
            "fault" => format!("{{abort: {{http_status: {shown}}}}}"),
            _ => format!("{{http_status: {shown}}}"),
        },
        "fault" if is_time => format!("{{delay: {{fixed_delay: {shown}}}}}"),
        "delay" if is_time && parents.contains(&"fault") => format!("{{fixed_delay: {shown}}}"),
        "tcp" => format!("{{cluster: {shown}}}"),
        "http" => "{virtual_hosts: [{domains: [\"*\"], routes: [{cluster: NAME}]}]}".into(),
        "request_headers" | "response_headers" => "{set: {NAME: VALUE}}".into(),
        _ => return None,
    };
    write(field, &value)
}

fn number(field: &str, text: &str) -> Option<String> {
    if let Some(percent) = shapes::percent(text) {
        return write(field, percent);
    }
    if field == "workers" {
        return Some("write the number of threads, such as `workers: 2`".into());
    }
    if text
        .parse::<f64>()
        .is_ok_and(|number| number.fract() != 0.0)
    {
        return match field {
            "weight" => Some("weights are whole numbers: 9 and 1 rather than 0.9 and 0.1".into()),
            _ => None,
        };
    }
    let size = shapes::size(text).filter(|_| text.starts_with(|c: char| c.is_ascii_digit()));
    size.and_then(|size| write(field, &size.to_string()))
}

/// Returns a redirect block for a text that may be a URL, a path, a status or a word.
fn redirect(text: &str) -> String {
    let url = text.split_once("://");
    let value = match url {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let mut value = format!("scheme: {}", short(scheme));
            if !host.is_empty() && !host.contains('$') {
                let (host, port) = host.split_once(':').unwrap_or((host, ""));
                value.push_str(&format!(", host: {}", short(host)));
                if !port.is_empty() {
                    value.push_str(&format!(", port: {}", short(port)));
                }
            }
            if !path.is_empty() && !path.contains('$') {
                value.push_str(&format!(", path: /{}", short(path)));
            }
            value
        }
        None if text.starts_with('/') => format!("path: {}", short(text)),
        None if text.parse::<u16>().is_ok() => format!("status: {}, host: NAME", short(text)),
        None if text == "https" || truth(text).is_some() => "scheme: https".into(),
        None => format!("host: {}", short(text)),
    };
    format!("write `redirect: {{{value}}}`")
}

fn hash(text: &str) -> String {
    match text {
        "path" => "{path: true}".into(),
        "cookie" | "header" | "query" => format!("{{{text}: NAME}}"),
        "source_address" | "source" | "ip" | "client_ip" | "source_ip" | "true" => {
            "{source_address: true}".into()
        }
        _ => format!("{{header: {}}}", short(text)),
    }
}

fn endpoints(text: &str) -> String {
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    let all: Vec<_> = words
        .map(|word| shapes::endpoint(word).unwrap_or_else(|| word.to_owned()))
        .collect();
    short(&all.join(", "))
}

/// Returns a replacement for a mapping where a list or a string is required.
fn mapping(field: &str, expected: &str, pairs: &[(&str, Option<&str>)]) -> Option<String> {
    let (first, value) = pairs.first().copied()?;
    let wanted_list = expected == "a sequence";
    match field {
        "headers" | "query" if wanted_list => {
            let all = pairs.iter().take(3).map(|(name, value)| {
                let value = value.map_or("VALUE".into(), short);
                format!("{{name: {}, exact: {value}}}", short(name))
            });
            write(field, &format!("[{}]", all.collect::<Vec<_>>().join(", ")))
        }
        "endpoints" if wanted_list && value.is_some() && first != "address" => {
            let all: Vec<_> = pairs
                .iter()
                .filter_map(|(_, value)| shapes::endpoint((*value)?))
                .collect();
            (!all.is_empty()).then(|| format!("write `endpoints: [{}]`", all.join(", ")))
        }
        "clusters" if wanted_list && value.is_some_and(|text| text.parse::<u32>().is_ok()) => {
            let all = pairs.iter().take(4).map(|(name, weight)| {
                format!(
                    "{{name: {}, weight: {}}}",
                    short(name),
                    weight.map_or("1".into(), short)
                )
            });
            write(field, &format!("[{}]", all.collect::<Vec<_>>().join(", ")))
        }
        "listeners" | "clusters" | "route_tables"
            if wanted_list && !pairs.iter().any(|(k, _)| *k == "name") =>
        {
            let name = short(first);
            Some(format!(
                "write a list: `- name: {name}`, followed by the other fields of the item"
            ))
        }
        "address" => {
            let of = |names: &[&str]| {
                let found = pairs
                    .iter()
                    .find(|(name, value)| names.contains(name) && value.is_some());
                found.and_then(|(_, value)| *value)
            };
            let (host, port) = (of(&["address", "host", "ip"]), of(&["port", "port_value"]));
            match (host, port) {
                (Some(host), Some(port)) => write(field, &short(&format!("{host}:{port}"))),
                _ => write(field, "IP:PORT"),
            }
        }
        _ => None,
    }
}

/// Returns a replacement for a list where a mapping or a string is required.
fn list(field: &str, expected: &str) -> Option<String> {
    match field {
        "routes" if expected == "a string" => Some(
            "`routes` names a route table; routes belong in virtual hosts: \
             write `virtual_hosts: [{domains: [\"*\"], routes: […]}]`"
                .into(),
        ),
        "" => Some(
            "the file must be a mapping: write `listeners:` above the listeners, `clusters:` \
             above the clusters"
                .into(),
        ),
        "request_headers" | "response_headers" => write(field, "{set: {NAME: VALUE}}"),
        "set" | "add" => write(field, "{NAME: VALUE}"),
        "health_check" => {
            Some("a cluster has only one health check: write its fields without `- `".into())
        }
        "cluster" => Some("write `clusters: [{name: NAME, weight: N}, …]` for several".into()),
        _ => None,
    }
}

/// Returns a replacement that may apply to any field.
fn general(field: &str, expected: &str, found: &Found<'_>) -> Option<String> {
    let block = expected
        .strip_prefix("struct ")
        .and_then(foreign_terms::block)?;
    if matches!(found, Found::List) || field.is_empty() {
        return None;
    }
    let fields: Vec<_> = block.fields.iter().copied().take(12).collect();
    Some(format!("write `{field}: {{…}}` with {}", one_of(&fields)))
}
