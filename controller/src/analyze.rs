//! `maglor analyze`: applies manifests to the index and reports their statuses.
//!
//! Only the files are known. A Service that a route names may exist in the cluster, so missing resources are reported
//! as warnings. Resources that can never take effect are errors, and so are a missing Gateway and a missing subset.

mod fronts;
mod gateways;
mod groups;
mod source;
mod unread;

use std::fmt;

use maglor_config::resource::line_of;
use maglor_manifests::inject::keys::{self, Fault};
use maglor_manifests::inject::yaml;
use serde_json::Value;

use self::fronts::Fronts;
use self::gateways::Gateways;
use self::groups::Groups;
use self::source::{Source, conditions};
use crate::crd::check::SpecError;
use crate::crd::{GROUP, operated, typed};
use crate::index::Index;
use crate::index::facts::route::{RouteKind, Unsupported};
use crate::index::facts::{Facts, Object, ReadError};

/// The severity of a problem.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// The resource would have no effect.
    Error,
    /// A part of it would have no effect, or it depends on a resource that is not among the files.
    Warning,
}

/// A setting that is not supported or is invalid.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The file's name, as passed in.
    pub file: String,
    /// The line in the file, from 1.
    pub line: usize,
    /// Kind, namespace and name of the resource.
    pub resource: String,
    /// The severity.
    pub severity: Severity,
    /// A CamelCase reason, as in the resource's status.
    pub reason: String,
    /// Description of the problem. It begins with the field's path if there is one.
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

/// The result of an analysis.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Analysis {
    /// The number of resources of supported kinds.
    pub resources: usize,
    /// The number of other resources, including those whose kind is reported as a problem.
    pub others: usize,
    /// The problems, ordered by file and line.
    pub problems: Vec<Problem>,
}

/// A document of a file.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a str,
    /// The text of the document.
    text: &'a str,
    /// The number of lines of the file before the document.
    before: usize,
}

/// Analyzes files: pairs of a name and a text.
#[must_use]
pub fn analyze(files: &[(String, String)]) -> Analysis {
    let mut analysis = Analysis::default();
    let (mut index, mut sources) = (Index::default(), Vec::new());
    let (mut groups, mut fronts) = (Groups::default(), Fronts::default());
    let mut gateways = Gateways::default();
    for (file, text) in files {
        for (before, text) in yaml::split(text) {
            let place = Place { file, text, before };
            let values = match read(text) {
                Ok(values) => values,
                Err(error) => {
                    let line = before + error.line;
                    let message = match text.contains("{{") {
                        true => {
                            format!("{}; if this is a template, render it first", error.message)
                        }
                        false => error.message,
                    };
                    analysis.problems.push(unread(file, line, message));
                    continue;
                }
            };
            for value in values {
                analysis.misread(place, &value);
                analysis.problems.extend(unread::keys(place, &value));
                fronts.take(place, &value);
                gateways.take(place, &value);
                let mut value = value;
                // Mistyped fields are removed so that the rest can be checked.
                let mistyped = typed_as_its_own(&mut value);
                for error in &mistyped {
                    let problem =
                        place.problem(&value, Severity::Error, "Invalid", error.to_string());
                    analysis.problems.push(problem);
                }
                match Object::read(&value) {
                    Ok(object) => {
                        if let Some(unsupported) = without_parent(&object.facts) {
                            let reason = "UnsupportedValue";
                            for message in parts(&unsupported.to_string()) {
                                let problem =
                                    place.problem(&value, Severity::Error, reason, message);
                                analysis.problems.push(problem);
                            }
                        }
                        analysis.problems.extend(unread::fields(place, &value));
                        sources.push((Source::new(place, &object), mistyped));
                        index.apply(object);
                    }
                    Err(ReadError::UnknownKind { .. }) => {
                        analysis.problems.extend(groups.join(place, &value));
                        analysis.other(place, &value);
                    }
                    Err(error) => {
                        let problem = unread(file, before + 1, error.to_string());
                        analysis.problems.push(problem);
                    }
                }
            }
        }
    }
    analysis.resources += sources.len();
    gateways.assume(&mut index);
    analysis.problems.extend(gateways.problems());
    let statuses = index.changes().statuses;
    for (source, mistyped) in &sources {
        let own = statuses
            .iter()
            .filter(|(kind, key, _)| (*kind, key) == (source.id.0, &source.id.1));
        let conditions = own.flat_map(|(_, _, status)| status.iter().flat_map(conditions));
        let conditions: Vec<_> = conditions.collect();
        let problems = source.problems(&conditions, &index).into_iter();
        let others = problems.filter(|one| !follows_from(one, mistyped));
        analysis.problems.extend(others);
    }
    analysis.problems.extend(fronts.problems());
    let place = |problem: &Problem| (problem.file.clone(), problem.line, problem.message.clone());
    analysis.problems.sort_by_key(place);
    analysis.problems.dedup();
    analysis
}

impl Analysis {
    /// Reports labels and annotations of the mesh that are unknown or invalid.
    fn misread(&mut self, place: Place<'_>, value: &Value) {
        let problem = |finding: keys::Finding| {
            let (severity, reason) = match finding.fault {
                Fault::Misplaced { .. } => (Severity::Warning, "MisplacedKey"),
                Fault::Unknown { .. } => (Severity::Warning, "UnknownKey"),
                Fault::Value { .. } => (Severity::Error, "Invalid"),
            };
            place.problem(value, severity, reason, finding.to_string())
        };
        self.problems
            .extend(keys::check(value).into_iter().map(problem));
    }

    /// Handles a resource of a kind that the index does not read.
    fn other(&mut self, place: Place<'_>, value: &Value) {
        let (version, kind) = (word(&value["apiVersion"]), word(&value["kind"]));
        let group = group(value);
        let mut problem = |severity, reason: &str, message: String| {
            let problem = place.problem(value, severity, reason, message);
            self.problems.push(problem);
        };
        if let Some(checked) = operated::check(value) {
            if let Err(error) = checked {
                for text in parts(&error.to_string()) {
                    problem(Severity::Error, "Invalid", text);
                }
            }
            self.resources += 1;
            return;
        }
        if group == GROUP {
            let message = format!("unknown kind in `{version}`");
            let message = match unread::kind_meant(version, kind) {
                Some(meant) => format!("{message}; {meant}"),
                None => message,
            };
            problem(Severity::Error, "UnknownKind", message);
        } else if group.ends_with(".istio.io") || group == "gateway.networking.k8s.io" {
            let mut message = format!("`{version}` {kind} is not supported and has no effect");
            if let Some(alternative) = unread::alternative(kind) {
                message = format!("{message}; {alternative}");
            }
            problem(Severity::Warning, "UnsupportedKind", message);
        }
        if kind.is_empty() && version.is_empty() {
            self.problems.push(no_resource(place, value));
        }
        self.others += 1;
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn group(value: &Value) -> &str {
    let version = word(&value["apiVersion"]);
    version.split_once('/').unwrap_or_default().0
}

/// Checks a resource of one of the mesh's own kinds against its schema, as an API server would, and removes mistyped
/// fields.
fn typed_as_its_own(value: &mut Value) -> Vec<SpecError> {
    match group(value) {
        GROUP => typed::check(value),
        _ => Vec::new(),
    }
}

/// Returns whether a problem concerns a block from which a mistyped field was removed, so that it may be a
/// consequence.
fn follows_from(problem: &Problem, mistyped: &[SpecError]) -> bool {
    let block = problem.message.split(": ").next().unwrap_or_default();
    mistyped.iter().any(|error| {
        let error = error.to_string();
        let inner = error.strip_prefix(block);
        inner.is_some_and(|inner| inner.starts_with(['.', '[']))
    })
}

/// Returns why a route has no effect, if it has no parent in whose status this could be reported.
fn without_parent(facts: &Facts) -> Option<&Unsupported> {
    match facts {
        // A VirtualService always has a status.
        Facts::Route(route)
            if route.kind != RouteKind::Istio
                && route.parents.is_empty()
                && route.gateways.is_empty() =>
        {
            route.rules.as_ref().err()
        }
        _ => None,
    }
}

impl Place<'_> {
    fn problem(&self, value: &Value, severity: Severity, reason: &str, message: String) -> Problem {
        let name = word(&value["metadata"]["name"]);
        Problem {
            file: self.file.to_owned(),
            line: self.line(&message),
            resource: format!("{} {name}", word(&value["kind"])),
            severity,
            reason: reason.to_owned(),
            message,
        }
    }

    /// Returns the line that a message concerns: that of the field at its beginning, or otherwise that of the
    /// resource's name.
    fn line(&self, message: &str) -> usize {
        let path = message.split(": ").next();
        let path = path.filter(|path| path.starts_with("spec") || path.starts_with("metadata"));
        let line = line_of(self.text, path.unwrap_or("metadata.name"));
        self.before + line.unwrap_or(1)
    }
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

/// Reports a document that is not a resource. This is a warning, since directories contain other files, too. A proxy
/// configuration is an error that names the right command.
fn no_resource(place: Place<'_>, value: &Value) -> Problem {
    let is_configuration = ["listeners", "clusters"]
        .iter()
        .any(|field| value.get(field).is_some());
    let (severity, message) = match is_configuration {
        true => (
            Severity::Error,
            "this is a proxy configuration; validate it with `maglor check FILE`",
        ),
        false => (
            Severity::Warning,
            "not a Kubernetes object: `apiVersion`, `kind` and `metadata` are missing",
        ),
    };
    Problem {
        severity,
        ..unread(place.file, place.before + 1, message.to_owned())
    }
}

/// Splits a message that names several fields into one message per field.
fn parts(message: &str) -> Vec<String> {
    if !message.starts_with("spec") {
        return vec![message.to_owned()];
    }
    let each = message.split("; spec").enumerate();
    let part = |(at, part): (usize, &str)| match at {
        0 => part.to_owned(),
        _ => format!("spec{part}"),
    };
    each.map(part).collect()
}

/// Reads the resources of a document; a list contains several.
fn read(text: &str) -> Result<Vec<Value>, yaml::ReadError> {
    let mut resources = Vec::new();
    for document in yaml::documents(text)? {
        resources.extend(yaml::items(document.value));
    }
    resources.iter_mut().for_each(yaml::without_nulls);
    Ok(resources)
}

#[cfg(test)]
mod tests;
