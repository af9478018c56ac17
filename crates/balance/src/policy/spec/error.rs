//! Errors in the notation of a policy. Every message names the parameter, the reason, the valid range and, for a
//! misspelt word, the nearest valid one.

/// An error in a [`PolicySpec`](crate::PolicySpec).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The policy exists only in the simulator.
    #[error(
        "policy {name} is for comparison in `maglor-lab sim` only; write `{instead}`, which also uses true queue lengths"
    )]
    ComparisonOnly {
        /// The name as written, shortened if it is long.
        name: String,
        /// The nearest policy of the proxy.
        instead: &'static str,
    },
    /// A parameter is given twice.
    #[error("policy {policy}: parameter {parameter} is given twice")]
    DuplicateParameter {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        parameter: String,
    },
    /// A value is not a number or is out of range.
    #[error("policy {policy}: {parameter}={value} {reason}; valid: {valid}")]
    InvalidParameter {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// The value as written.
        value: String,
        /// The reason, with a suggestion if there is one.
        reason: String,
        /// The valid range.
        valid: String,
    },
    /// A mapping has no field `name`.
    #[error("policy: `name` is missing; write `{{name: lor, choices: 2}}` or `lor(choices=2)`")]
    MissingName,
    /// The text is not of the form `name(parameter=value, …)`.
    #[error("policy `{text}`: {reason}; write `name` or `name(parameter=value, ...)`")]
    Syntax {
        /// The text, shortened if it is long.
        text: String,
        /// The reason.
        reason: &'static str,
    },
    /// The policy does not have the parameter.
    #[error("policy {policy} has no parameter `{parameter}`{}", hint(*suggestion, &known_parameters(known)))]
    UnknownParameter {
        /// The policy.
        policy: &'static str,
        /// The parameter as written.
        parameter: String,
        /// The nearest parameter of the policy; `None` if none is near.
        suggestion: Option<&'static str>,
        /// The parameters of the policy.
        known: &'static [&'static str],
    },
    /// There is no policy with this name.
    #[error("there is no policy `{name}`{}", hint(*suggestion, &format!("available: {}", join(&super::forms::NAMES))))]
    UnknownPolicy {
        /// The name as written, shortened if it is long.
        name: String,
        /// The name of the nearest policy; `None` if none is near.
        suggestion: Option<&'static str>,
    },
}

/// Formats a suggestion and the known words.
fn hint(suggestion: Option<&'static str>, known: &str) -> String {
    match suggestion {
        Some(word) => format!("; did you mean `{word}`? ({known})"),
        None => format!("; {known}"),
    }
}

fn known_parameters(known: &[&str]) -> String {
    if known.is_empty() {
        "it has no parameters".into()
    } else {
        format!("it has: {}", join(known))
    }
}

fn join(words: &[&str]) -> String {
    words.join(", ")
}
