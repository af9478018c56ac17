//! Validates single parts of a configuration, which come from a control plane instead of a file.
//!
//! The rules are the same as for a file, except for references between parts: the cluster of a route is looked up when
//! both exist.

use serde::de::DeserializeOwned;

use crate::check::{self, Known, Scope};
use crate::load::of_fault;
use crate::report::{At, Report};
use crate::source::{Lines, Source, Yaml};
use crate::yaml::{Id, Kind, Tree, de};
use crate::{Cluster, Diagnostic, Endpoint, Errors, RouteTable, Severity, raw};

/// The setting for parts, whose references may be unresolved.
pub(crate) const PARTS: Known = Known {
    clusters: false,
    route_tables: false,
    identity: true,
    one_author: false,
};

/// Parses one block; `name` is the name of the text in messages.
///
/// # Errors
///
/// All values that do not have the type of the block, with line, column and path.
pub fn read<T: DeserializeOwned>(text: &str, name: &str) -> Result<T, Errors> {
    let lines = Lines::new(text);
    let tree = Tree::read(text).map_err(|fault| Errors(vec![of_fault(&lines, name, fault)]))?;
    let decoded = de::decode::<T>(&tree);
    let yaml = Yaml {
        file: name,
        lines,
        tree: &tree,
        poisoned: decoded.poisoned,
    };
    match decoded.value {
        Some(value) if decoded.errors.is_empty() => Ok(value),
        _ => {
            let errors = decoded.errors.iter();
            Err(Errors(errors.map(|e| yaml.decode_error(e)).collect()))
        }
    }
}

/// Returns the line, from 1, of a value of a document, such as `spec.rules[0].filters[1]`. If the value does not exist,
/// it is the line of the last existing part of the path. `None` if the text cannot be parsed.
#[must_use]
pub fn line_of(text: &str, path: &str) -> Option<usize> {
    let tree = Tree::read(text).ok()?;
    let mut at = tree.root;
    let mut line = tree.place(at).line;
    let mut rest = path;
    while let Some((shown, value, after)) = step(&tree, at, rest) {
        line = tree.place(shown).line;
        (at, rest) = (value, after);
    }
    Some(line)
}

/// Resolves the first part of a path: returns its key, its node and the rest of the path. Keys may contain dots; the
/// longest existing key is taken.
fn step<'a>(tree: &Tree, at: Id, path: &'a str) -> Option<(Id, Id, &'a str)> {
    let path = path.trim_start_matches('.');
    match tree.kind(at) {
        Kind::Mapping(pairs) => {
            let named = |pair: &(Id, Id)| {
                let key = tree.text(pair.0).filter(|key| !key.is_empty())?;
                let after = path.strip_prefix(key)?;
                let ends = after.is_empty() || after.starts_with(['.', '[']);
                ends.then_some((pair.0, pair.1, after))
            };
            let found = pairs.iter().filter_map(named);
            found.min_by_key(|(_, _, after)| after.len())
        }
        Kind::Sequence(items) => {
            let (index, after) = path.strip_prefix('[')?.split_once(']')?;
            let item = *items.get(index.parse::<usize>().ok()?)?;
            Some((item, item, after))
        }
        Kind::Scalar { .. } => None,
    }
}

/// Validates a cluster. With `has_identity` it may use mesh TLS.
///
/// # Errors
/// All errors, by field.
pub fn cluster(raw: &raw::Cluster, has_identity: bool) -> Result<Cluster, Errors> {
    let name = format!("cluster `{}`", shown(raw.name.as_deref()));
    let document = raw::Document {
        identity: has_identity.then(raw::Identity::default),
        ..raw::Document::default()
    };
    judge(&document, PARTS, &name, |at, scope| {
        check::one_cluster(raw, at, scope)
    })
}

/// Validates the endpoints of a cluster.
///
/// # Errors
/// All errors, by field.
pub fn endpoints(
    cluster: &str,
    raw: &[raw::Short<raw::Endpoint>],
) -> Result<Vec<Endpoint>, Errors> {
    let name = format!("endpoints of `{}`", crate::yaml::short(cluster));
    let document = raw::Document::default();
    judge(&document, PARTS, &name, |at, _| {
        Some(check::endpoints(raw, at))
    })
}

/// Validates a route table. Its clusters may be missing.
///
/// # Errors
///
/// All errors, by field.
pub fn routes(raw: &raw::RouteTable) -> Result<RouteTable, Errors> {
    let name = format!("routes `{}`", shown(raw.name.as_deref()));
    let document = raw::Document::default();
    judge(&document, PARTS, &name, |at, scope| {
        check::one_table(raw, at, scope)
    })
}

fn shown(name: Option<&str>) -> String {
    name.map(crate::yaml::short).unwrap_or_default()
}

/// Runs a check and drops the warnings, which are meant for authors of files.
pub(crate) fn judge<T>(
    document: &raw::Document,
    known: Known,
    name: &str,
    check: impl FnOnce(&At<'_>, &Scope<'_>) -> Option<T>,
) -> Result<T, Errors> {
    let report = Report::default();
    let checked = check(&report.root(), &Scope::new(document, &[], known));
    let (findings, _) = report.into_findings();
    let source = Source::Resource(name);
    let errors: Vec<Diagnostic> = findings
        .into_iter()
        .filter_map(|finding| source.diagnostic(finding))
        .filter(|diagnostic| diagnostic.severity == Severity::Error)
        .collect();
    match checked {
        Some(checked) if errors.is_empty() => Ok(checked),
        _ if errors.is_empty() => Err(Errors::file(name, "missing name".to_owned(), None)),
        _ => Err(Errors(errors)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_path() {
        let text = "kind: A\nspec:\n  rules:\n  - {name: a}\n  - name: b\n    to:\n    - x\n";
        for (path, line) in [
            ("kind", 1),
            ("spec.rules[1].to[0]", 7),
            ("spec.rules[1].to", 6),
            ("spec.rules[0].name", 4),
            ("spec.rules[0].gone.further", 4),
            ("spec.rules[7]", 3),
            ("", 1),
        ] {
            assert_eq!(line_of(text, path), Some(line), "{path}");
        }
        assert_eq!(line_of("a: [", "a"), None);
    }

    #[test]
    fn a_block_is_read_like_a_file() {
        let raw: raw::Cluster = read(
            "{name: a, policy: 'bounce(tries=3)', connect_timeout: 2s}",
            "x",
        )
        .unwrap();
        let cluster = cluster(&raw, false).unwrap();
        assert_eq!(cluster.policy.to_string(), "bounce(tries=3)");
        let error = read::<raw::Cluster>("{name: a, connect_timeut: 2s}", "x").unwrap_err();
        assert!(error.to_string().contains("connect_timeut"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let raw: raw::Cluster = read("{name: a, max_concurrent_streams: 0}", "x").unwrap();
        let error = cluster(&raw, false).unwrap_err().to_string();
        assert!(
            error.starts_with("cluster `a`: error: max_concurrent_streams: "),
            "{error}"
        );
        let raw: raw::Cluster = read("{name: a, tls: mesh}", "x").unwrap();
        assert!(cluster(&raw, false).is_err());
        assert!(cluster(&raw, true).is_ok());
    }

    #[test]
    fn routes_may_lead_to_clusters_that_are_not_there_yet() {
        let text = "{name: t, virtual_hosts: [{domains: ['*'], routes: [{cluster: later}]}]}";
        let table = routes(&read(text, "x").unwrap()).unwrap();
        assert_eq!(table.virtual_hosts.len(), 1);
        let text = "{name: t, virtual_hosts: [{domains: ['*'], routes: [{timeout: 1s}]}]}";
        let error = routes(&read(text, "x").unwrap()).unwrap_err().to_string();
        assert!(error.contains("virtual_hosts[0].routes[0]"), "{error}");
    }
}
