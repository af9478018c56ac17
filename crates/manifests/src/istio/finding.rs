//! Findings: the fields that a translation omits, with the reasons.

use std::cell::RefCell;
use std::fmt;

/// The effect of an unsupported field on its resource.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Effect {
    /// The rest of the resource is applied.
    Ignored,
    /// The whole resource is rejected.
    Refused,
}

/// An unsupported or invalid field of a resource.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The path of the field, such as `spec.http[0].match[1].sourceLabels`.
    pub path: String,
    /// The reason, with an alternative if there is one.
    pub message: String,
    /// The effect of the field on the rest of the resource.
    pub effect: Effect,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// The result of reading a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Read<T> {
    /// The translation; `None` if the resource is rejected.
    pub value: Option<T>,
    /// The findings, in the order of the known fields.
    pub findings: Vec<Finding>,
}

/// A collector of findings.
#[derive(Debug, Default)]
pub(crate) struct Report(RefCell<Vec<Finding>>);

impl Report {
    pub(crate) fn add(&self, effect: Effect, path: String, message: impl Into<String>) {
        self.0.borrow_mut().push(Finding {
            path,
            message: message.into(),
            effect,
        });
    }

    /// Returns the translation with the findings. There is no translation if a finding rejects the resource.
    pub(crate) fn read<T>(self, value: Option<T>) -> Read<T> {
        let findings = self.0.into_inner();
        let refused = findings.iter().any(|one| one.effect == Effect::Refused);
        Read {
            value: value.filter(|_| !refused),
            findings,
        }
    }
}
