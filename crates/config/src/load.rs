//! Loads a configuration: from text, through the tree and the raw types, to the validated configuration.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use crate::check::{self, Known};
use crate::report::{MAX_FINDINGS, Report};
use crate::source::{Lines, Source, Yaml};
use crate::suggest::nearest;
use crate::yaml::de::{self, MAX_ERRORS};
use crate::yaml::{DecodeError, Fault, Kind, MAX_BYTES, Tree, foreign};
use crate::{Config, Diagnostic, Errors, Origin, Severity, raw};

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The validated configuration.
    pub config: Config,
    /// The warnings, in the order of the file.
    pub warnings: Vec<Diagnostic>,
    /// The same configuration as YAML in a canonical form, whether it came from a file or from flags: configurations
    /// with equal texts are equal.
    pub yaml: Arc<str>,
}

/// Reads and validates a file.
///
/// # Errors
/// All errors, in the order of the file.
pub fn load(path: &Path) -> Result<Loaded, Errors> {
    let file = path.display().to_string();
    let bytes = read(path).map_err(|error| unreadable(path, &error))?;
    if bytes.len() > MAX_BYTES {
        let message = format!("the file has more than {MAX_BYTES} bytes");
        return Err(Errors::file(&file, message, None));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..valid]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        let message = format!("line {line} is not UTF-8 text");
        Errors::file(&file, message, Some("save the file as UTF-8".into()))
    })?;
    parse(&text, &file)
}

/// Returns the reason why a file cannot be read, with a suggested fix.
fn unreadable(path: &Path, error: &io::Error) -> Errors {
    let file = path.display().to_string();
    let (message, help) = match error.kind() {
        io::ErrorKind::NotFound => (
            "cannot read the file: no such file".to_owned(),
            others_like(path),
        ),
        io::ErrorKind::IsADirectory => (
            "cannot read the file: the path is a directory".to_owned(),
            others_like(&path.join("maglor.yaml")),
        ),
        io::ErrorKind::PermissionDenied => (
            "cannot read the file: permission denied".to_owned(),
            Some("check the owner and mode of the file and of its directories".to_owned()),
        ),
        _ => (format!("the file cannot be read: {error}"), None),
    };
    Errors::file(&file, message, help)
}

/// Returns other files in the same folder that may have been meant.
fn others_like(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Some(format!("cannot read the directory `{}`", folder.display()));
    };
    let is_yaml = |name: &String| {
        [".yaml", ".yml", ".json"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let names = entries
        .take(1000)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(is_yaml).collect();
    names.sort();
    if let Some(near) = nearest(name, names.iter().map(String::as_str)) {
        return Some(format!(
            "did you mean `{}`?",
            path.with_file_name(near).display()
        ));
    }
    names.truncate(5);
    (!names.is_empty()).then(|| format!("the directory contains {}", names.join(", ")))
}

/// Returns the contents of a file; if it is longer than the limit, or endless, one byte more than the limit.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    let mut file = File::open(path)?.take(most.saturating_add(1));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the diagnostic of an error that occurred when a configuration was applied. Its place is the value that the
/// message contains, such as a file or an address.
#[must_use]
pub fn blame(path: &Path, message: &str, help: Option<String>) -> Diagnostic {
    let file = path.display().to_string();
    let whole = || Diagnostic {
        severity: Severity::Error,
        origin: Origin::File(file.clone()),
        path: String::new(),
        message: message.to_owned(),
        help: help.clone(),
        snippet: None,
        note: None,
    };
    let text = read(path)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(text) = text else { return whole() };
    let Ok(tree) = Tree::read(&text) else {
        return whole();
    };
    match tree.named_in(message) {
        Some((place, path)) => {
            Lines::new(&text).error(&file, place, path, message.to_owned(), help)
        }
        None => whole(),
    }
}

/// Validates a text; `file` is the name of the text in messages.
///
/// # Errors
///
/// All errors, in the order of the file.
pub fn parse(text: &str, file: &str) -> Result<Loaded, Errors> {
    let lines = Lines::new(text);
    let tree = match Tree::read(text) {
        Ok(tree) => tree,
        Err(fault) => return Err(Errors(vec![of_fault(&lines, file, fault)])),
    };
    if tree.text(tree.root) == Some("") {
        let help = "docs/configuration.md starts with a small example";
        let message = "the file contains no configuration".to_owned();
        return Err(Errors::file(file, message, Some(help.into())));
    }
    if !matches!(tree.kind(tree.root), Kind::Mapping(_))
        && let Some(fault) = foreign(text)
    {
        return Err(Errors(vec![of_fault(&lines, file, fault)]));
    }
    let mut decoded = de::decode::<raw::Document>(&tree);
    let yaml = Yaml {
        file,
        lines,
        tree: &tree,
        poisoned: std::mem::take(&mut decoded.poisoned),
    };
    let mut found: Vec<Diagnostic> = Vec::new();
    found.extend(decoded.errors.iter().map(|error| yaml.decode_error(error)));
    let cut_short = decoded.errors.len() >= MAX_ERRORS;
    let known = known(&decoded.errors);
    found.extend(
        tree.duplicates
            .iter()
            .map(|fault| of_fault(&yaml.lines, file, fault.clone())),
    );
    let Some(document) = decoded.value else {
        return Err(refuse(found, usize::from(cut_short)));
    };
    finish(&document, known, found, &Source::Yaml(yaml))
}

/// Validates a raw configuration and sorts the findings.
pub(crate) fn finish(
    document: &raw::Document,
    known: Known,
    mut found: Vec<Diagnostic>,
    source: &Source<'_>,
) -> Result<Loaded, Errors> {
    let report = Report::default();
    let config = check::document(document, &report.root(), known);
    let (findings, dropped) = report.into_findings();
    let refused = findings
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    found.extend(
        findings
            .into_iter()
            .filter_map(|finding| source.diagnostic(finding)),
    );
    let errors = |d: &Diagnostic| d.severity == Severity::Error;
    if refused || found.iter().any(errors) {
        found.retain(errors);
        return Err(refuse(found, dropped));
    }
    found.sort_by(|a, b| a.origin.cmp(&b.origin));
    let yaml = document.to_yaml().map_err(|error| {
        Errors::file(
            "configuration",
            format!("the configuration cannot be written as YAML: {error}"),
            None,
        )
    })?;
    Ok(Loaded {
        config,
        warnings: found,
        yaml: yaml.into(),
    })
}

/// Returns the errors in the order of the file.
fn refuse(mut found: Vec<Diagnostic>, dropped: usize) -> Errors {
    found.sort_by(|a, b| a.origin.cmp(&b.origin));
    if dropped > 0 || found.len() > MAX_FINDINGS {
        found.truncate(MAX_FINDINGS);
        let file = match found.first().map(|first| &first.origin) {
            Some(Origin::Place { file, .. } | Origin::File(file)) => file.clone(),
            _ => "command line".into(),
        };
        let more = Errors::file(
            &file,
            "further errors are not shown; correct these first".into(),
            None,
        );
        found.extend(more.0);
    }
    Errors(found)
}

pub(crate) fn of_fault(lines: &Lines<'_>, file: &str, fault: Fault) -> Diagnostic {
    let mut diagnostic = lines.error(file, fault.place, fault.path, fault.message, fault.help);
    diagnostic.note = fault.note;
    diagnostic
}

/// Returns whether the names of all clusters and tables could be read. An error in a list, in an item as a whole, in a
/// name, or in a field that was meant to be one may have hidden some of them.
fn known(errors: &[DecodeError]) -> Known {
    let readable = |list: &str| {
        !errors.iter().any(|error| {
            let path = error.path();
            path.strip_prefix(list)
                .is_some_and(|rest| match rest.split_once('.') {
                    None => true,
                    Some((_, field)) => nearest(field, ["name"]).is_some(),
                })
        })
    };
    let identity = |error: &DecodeError| error.path().starts_with("identity");
    Known {
        clusters: readable("clusters"),
        route_tables: readable("route_tables"),
        identity: !errors.iter().any(identity),
        one_author: true,
    }
}
