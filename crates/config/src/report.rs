//! Collects findings while a configuration is validated.
//!
//! [`At`] is a place in the raw configuration: a linked list of names on the stack, so that a path is only allocated
//! when there is a finding. [`crate::source`] maps a place to a position in a file, or to a flag.

use std::cell::{Cell, RefCell};

use crate::Severity;

/// The maximum number of stored findings of each severity; further findings are only counted.
pub(crate) const MAX_FINDINGS: usize = 100;

/// One step of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// A field, or a key of a mapping with arbitrary keys.
    Field(String),
    /// An item of a list, not counting those that could not be read.
    Index(usize),
}

/// A finding about a place.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) path: Vec<Step>,
    /// Whether the finding is about the key of the last step, and not about its value.
    pub(crate) on_key: bool,
    /// Whether the finding is that a field is absent; it is not reported if the field could not be read.
    pub(crate) missing: bool,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// A related place, with a description of it.
    pub(crate) other: Option<(Vec<Step>, &'static str)>,
}

/// All findings of a validation.
#[derive(Debug, Default)]
pub(crate) struct Report {
    findings: RefCell<Vec<Finding>>,
    errors: Cell<usize>,
    warnings: Cell<usize>,
}

impl Report {
    /// Returns the place of the whole configuration.
    pub(crate) fn root(&self) -> At<'_> {
        At {
            report: self,
            parent: None,
            step: None,
        }
    }

    /// Returns whether there are so many errors that further work is useless.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.get() >= MAX_FINDINGS
    }

    /// Returns the findings in the order they were made, and the number of errors that were not
    /// stored.
    pub(crate) fn into_findings(self) -> (Vec<Finding>, usize) {
        let dropped = self.errors.get().saturating_sub(MAX_FINDINGS);
        (self.findings.into_inner(), dropped)
    }
}

#[derive(Clone, Copy)]
enum AtStep<'a> {
    Field(&'a str),
    Index(usize),
}

/// A place in the raw configuration.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    report: &'a Report,
    parent: Option<&'a At<'a>>,
    step: Option<AtStep<'a>>,
}

impl At<'_> {
    /// Returns the place of a field, or of a key of a mapping with arbitrary keys.
    pub(crate) fn field<'b>(&'b self, name: &'b str) -> At<'b> {
        self.step(AtStep::Field(name))
    }

    /// Returns the place of an item of a list.
    pub(crate) fn index(&self, index: usize) -> At<'_> {
        self.step(AtStep::Index(index))
    }

    fn step<'b>(&'b self, step: AtStep<'b>) -> At<'b> {
        At {
            report: self.report,
            parent: Some(self),
            step: Some(step),
        }
    }

    /// Returns the steps from the root.
    pub(crate) fn path(&self) -> Vec<Step> {
        let mut path = self.parent.map(At::path).unwrap_or_default();
        path.extend(self.step.map(|step| match step {
            AtStep::Field(name) => Step::Field(name.to_owned()),
            AtStep::Index(index) => Step::Index(index),
        }));
        path
    }

    pub(crate) fn report(&self) -> &Report {
        self.report
    }

    /// Reports an error: the configuration is rejected.
    pub(crate) fn error(&self, message: impl Into<String>) -> Note<'_> {
        self.push(Severity::Error, message.into())
    }

    /// Reports a warning: the configuration is used, but is probably not what its author meant.
    pub(crate) fn warning(&self, message: impl Into<String>) -> Note<'_> {
        self.push(Severity::Warning, message.into())
    }

    /// Reports a missing mandatory field.
    pub(crate) fn missing(&self, field: &str, help: &str) {
        let note = self
            .field(field)
            .push_owned(Severity::Error, format!("the field `{field}` is missing"));
        if let Some(index) = note {
            let mut findings = self.report.findings.borrow_mut();
            findings[index].missing = true;
            findings[index].help = Some(help.to_owned());
        }
    }

    fn push(&self, severity: Severity, message: String) -> Note<'_> {
        Note {
            report: self.report,
            index: self.push_owned(severity, message),
        }
    }

    fn push_owned(&self, severity: Severity, message: String) -> Option<usize> {
        let count = match severity {
            Severity::Error => &self.report.errors,
            Severity::Warning => &self.report.warnings,
        };
        count.set(count.get() + 1);
        if count.get() > MAX_FINDINGS {
            return None;
        }
        let mut findings = self.report.findings.borrow_mut();
        findings.push(Finding {
            severity,
            path: self.path(),
            on_key: false,
            missing: false,
            message,
            help: None,
            other: None,
        });
        Some(findings.len() - 1)
    }
}

/// A finding to which details may be added.
pub(crate) struct Note<'a> {
    report: &'a Report,
    index: Option<usize>,
}

impl Note<'_> {
    fn change(self, change: impl FnOnce(&mut Finding)) -> Self {
        if let Some(index) = self.index {
            change(&mut self.report.findings.borrow_mut()[index]);
        }
        self
    }

    /// Adds a suggested fix.
    pub(crate) fn help(self, text: impl Into<String>) -> Self {
        self.change(|finding| finding.help = Some(text.into()))
    }

    /// Adds a suggested fix, if there is one.
    pub(crate) fn maybe_help(self, text: Option<String>) -> Self {
        self.change(|finding| finding.help = text)
    }

    /// Adds a related place.
    pub(crate) fn other(self, path: Vec<Step>, what: &'static str) -> Self {
        self.change(|finding| finding.other = Some((path, what)))
    }

    /// Sets the place to the key, instead of its value.
    pub(crate) fn on_key(self) -> Self {
        self.change(|finding| finding.on_key = true)
    }

    /// Drops the finding if something directly at this place could not be read.
    pub(crate) fn when_readable(self) -> Self {
        self.change(|finding| finding.missing = true)
    }
}
