//! Fields that a translation leaves out, with reasons.

use std::cell::RefCell;
use std::fmt;

/// What becomes of a resource that has a field which is not done.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Effect {
    /// The rest of the resource is in force.
    Ignored,
    /// Nothing of the resource is in force.
    Refused,
}

/// Something that a resource says and that is not done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Where it stands, as `spec.http[0].match[1].sourceLabels`.
    pub path: String,
    /// Why, and what to do instead.
    pub message: String,
    /// What becomes of the rest.
    pub effect: Effect,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// A resource that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Read<T> {
    /// What it says; `None` where it is refused.
    pub value: Option<T>,
    /// What it says and is not done, in the order of the fields that are known.
    pub findings: Vec<Finding>,
}

/// Collects findings.
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

    /// What was read, unless something in it means that nothing of it may be used.
    pub(crate) fn read<T>(self, value: Option<T>) -> Read<T> {
        let findings = self.0.into_inner();
        let refused = findings.iter().any(|one| one.effect == Effect::Refused);
        Read {
            value: value.filter(|_| !refused),
            findings,
        }
    }
}
