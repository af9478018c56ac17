//! What a cluster would make of resources that are still files: the same index, asked for its statuses.
//!
//! What is not among the files is not known here: a Service that a route names may well be there. So
//! what is missing is a warning; what could never be in force is an error.

use std::fmt;

use maglor_config::resource::line_of;
use serde::Deserialize as _;
use serde_json::Value;

use crate::crd::Condition;
use crate::index::facts::{Key, Kind, Object, ReadError};
use crate::index::{Index, Status};

/// How bad a problem is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// The resource would not be in force.
    Error,
    /// A part of it would not be, or it depends on what is not among the files.
    Warning,
}

/// Something that is not done, or cannot be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// Kind, namespace and name.
    pub resource: String,
    /// How bad it is.
    pub severity: Severity,
    /// A word, as in the status of the resource.
    pub reason: String,
    /// What, and where: it begins with the field's path where there is one.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let Self {
            file,
            line,
            resource,
            reason,
            message,
            ..
        } = self;
        write!(
            f,
            "{file}:{line}: {severity}: {resource}: {message} ({reason})"
        )
    }
}

/// What was looked at.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Analysis {
    /// Resources of kinds that the mesh reads.
    pub resources: usize,
    /// Resources of other kinds.
    pub others: usize,
    /// What is wrong, by file and line.
    pub problems: Vec<Problem>,
}

/// Where a resource was read.
struct Source<'a> {
    file: &'a str,
    /// The text of its document.
    text: &'a str,
    /// Lines of the file before it.
    before: usize,
    id: (Kind, Key),
}

/// Looks at files: pairs of a name and a text.
#[must_use]
pub fn analyze(files: &[(String, String)]) -> Analysis {
    let mut analysis = Analysis::default();
    let (mut index, mut sources) = (Index::default(), Vec::new());
    for (file, text) in files {
        for (before, text) in documents(text) {
            match read(text) {
                Ok(objects) => {
                    for object in objects {
                        match object {
                            Ok(object) => {
                                let id = (object.kind, object.key.clone());
                                sources.push(Source {
                                    file,
                                    text,
                                    before,
                                    id,
                                });
                                index.apply(object);
                            }
                            Err(ReadError::UnknownKind { .. }) => analysis.others += 1,
                            Err(error) => {
                                analysis
                                    .problems
                                    .push(unread(file, before + 1, error.to_string()));
                            }
                        }
                    }
                }
                Err((line, message)) => {
                    let line = before + line.unwrap_or(1);
                    analysis.problems.push(unread(file, line, message));
                }
            }
        }
    }
    analysis.resources = sources.len();
    for (kind, key, status) in index.changes().statuses {
        let id = (kind, key);
        let Some(source) = sources.iter().find(|source| source.id == id) else {
            continue;
        };
        for condition in conditions(&status) {
            analysis.problems.extend(source.problem(&condition));
        }
    }
    let place = |problem: &Problem| (problem.file.clone(), problem.line, problem.message.clone());
    analysis.problems.sort_by_key(place);
    analysis.problems.dedup();
    analysis
}

fn unread(file: &str, line: usize, message: String) -> Problem {
    Problem {
        file: file.to_owned(),
        line,
        resource: "document".to_owned(),
        severity: Severity::Error,
        reason: "Unreadable".to_owned(),
        message,
    }
}

fn conditions(status: &Status) -> Vec<Condition> {
    match status {
        Status::Policy(conditions) => conditions.clone(),
        Status::Route(parents) => {
            let each = parents.iter().flat_map(|parent| &parent.conditions);
            each.cloned().collect()
        }
        // Nothing is programmed by files alone.
        Status::Whole(status) => {
            let listeners = status["listeners"].as_array().into_iter().flatten();
            let lists = listeners.chain([status]).map(|one| &one["conditions"]);
            let read = lists.filter_map(|list| Vec::<Condition>::deserialize(list).ok());
            let told = |one: &Condition| matches!(one.r#type.as_str(), "Accepted" | "ResolvedRefs");
            read.flatten().filter(told).collect()
        }
    }
}

impl Source<'_> {
    /// A condition that does not hold, or not wholly.
    fn problem(&self, condition: &Condition) -> Vec<Problem> {
        let severity = match condition.reason.as_str() {
            "Accepted" | "ResolvedRefs" => return Vec::new(),
            "Invalid" | "InvalidKind" | "UnsupportedValue" => Severity::Error,
            _ => Severity::Warning,
        };
        let (kind, key) = &self.id;
        let message = condition.message.as_str();
        let message = message
            .strip_prefix("it is in force, but: ")
            .unwrap_or(message);
        let parts: Vec<&str> = match message.starts_with("spec") {
            true => message.split("; spec").collect(),
            false => vec![message],
        };
        let problem = |(i, part): (usize, &str)| {
            let message = match i {
                0 => part.to_owned(),
                _ => format!("spec{part}"),
            };
            let path = message
                .split(": ")
                .next()
                .filter(|path| path.starts_with("spec"));
            let line = line_of(self.text, path.unwrap_or("metadata.name")).unwrap_or(1);
            Problem {
                file: self.file.to_owned(),
                line: self.before + line,
                resource: format!("{} {key}", kind.names().1),
                severity,
                reason: condition.reason.clone(),
                message,
            }
        };
        parts.into_iter().enumerate().map(problem).collect()
    }
}

/// The documents of a file, with the number of lines before each.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut start, mut before, mut lines) = (Vec::new(), 0, 0, 0);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let next = at + line.len();
        lines += 1;
        if line.trim_end() == "---" {
            found.push((before, &text[start..at]));
            (start, before) = (next, lines);
        }
        at = next;
    }
    found.push((before, &text[start..]));
    found
}

type Objects = Vec<Result<Object, ReadError>>;

/// The resources of a document; a list has several.
fn read(text: &str) -> Result<Objects, (Option<usize>, String)> {
    let value = Value::deserialize(serde_yaml::Deserializer::from_str(text)).map_err(|error| {
        let line = error.location().map(|location| location.line());
        (line, error.to_string())
    })?;
    let items = match &value {
        Value::Null => Vec::new(),
        Value::Object(map) if map.get("kind") == Some(&Value::from("List")) => {
            let items = map.get("items").and_then(Value::as_array);
            items.cloned().unwrap_or_default()
        }
        _ => vec![value],
    };
    Ok(items.iter().map(Object::read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_is_named_with_its_line() {
        let text = "# Two resources.
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata: {name: a, namespace: n}
spec:
  hosts: [a]
  http:
  - match:
    - sourceLabels: {app: b}
    route: [{destination: {host: a}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: s}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: n}
spec:
  host: a
  trafficPolicy:
    connectionPool:
      tcp:
        tcpKeepalive: {time: 60s}
---
apiVersion: v1
kind: Service
metadata: {name: a, namespace: n}
spec: {ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a, namespace: n}
spec:
  parentRefs: [{group: '', kind: Service, name: a}]
  rules:
  - backendRefs: [{name: b, port: 80}]
---
a: [
";
        let analysis = analyze(&[("a.yaml".to_owned(), text.to_owned())]);
        assert_eq!((analysis.resources, analysis.others), (4, 1));
        let found: Vec<String> = analysis.problems.iter().map(ToString::to_string).collect();
        let expected = [
            "a.yaml:9: error: VirtualService n/a: spec.http[0].match[0].sourceLabels: it is not supported (UnsupportedValue)",
            "a.yaml:24: warning: DestinationRule n/a: spec.trafficPolicy.connectionPool.tcp.tcpKeepalive: it is not supported (PartiallySupported)",
            "a.yaml:33: warning: HTTPRoute n/a: Service n/b does not exist (BackendNotFound)",
        ];
        assert_eq!(found[..3], expected);
        assert!(
            found[3].starts_with("a.yaml:40: error: document: "),
            "{}",
            found[3]
        );
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn what_would_be_in_force_is_no_problem() {
        let text = "{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {name: default, namespace: istio-system}, spec: {mtls: {mode: STRICT}}}";
        let analysis = analyze(&[("a.json".to_owned(), text.to_owned())]);
        assert_eq!((analysis.resources, analysis.problems.len()), (1, 0));
    }
}
