//! The error of [`super::de`]: its place, the reason and a suggested fix, in the operator's terms.

use std::fmt::{self, Display};

use serde::de::{Expected, Unexpected};

use super::excerpt::short;
use super::tree::{self, Id};
use crate::hints::{choices, fields};

/// A value that does not have the required type.
///
/// Boxed, because the results of every type of the configuration contain it.
#[derive(Debug)]
pub(crate) struct DecodeError(Box<Wrong>);

#[derive(Debug)]
struct Wrong {
    node: Option<Id>,
    /// The path in reverse: from the innermost to the outermost name.
    trail: Vec<Step>,
    message: String,
    help: Option<String>,
    cause: Cause,
}

/// The kind of error, for hints that need the text around it.
#[derive(Debug)]
pub(crate) enum Cause {
    /// An unknown field; the known fields.
    Field(&'static [&'static str]),
    /// Any other error.
    Other,
    /// A value that does not have this type, in serde's words.
    Type(String),
}

#[derive(Debug)]
enum Step {
    Index(usize),
    Key(String),
}

impl DecodeError {
    fn new(message: String, help: Option<String>) -> Self {
        Self(Box::new(Wrong {
            node: None,
            trail: Vec::new(),
            message,
            help,
            cause: Cause::Other,
        }))
    }

    fn because(mut self, cause: Cause) -> Self {
        self.0.cause = cause;
        self
    }

    pub(crate) fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// Returns the innermost node that is wrong; `None` until the error has passed through a deserializer.
    pub(crate) fn node(&self) -> Option<Id> {
        self.0.node
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn help(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// Creates the error for an empty key or value.
    pub(super) fn empty() -> Self {
        let help = "write a value (`{}` for a block with all defaults), or remove the line";
        Self::new("the value is empty".into(), Some(help.into()))
    }

    pub(super) fn at(mut self, node: Id) -> Self {
        self.0.node.get_or_insert(node);
        self
    }

    pub(super) fn in_key(mut self, key: &str) -> Self {
        self.0.trail.push(Step::Key(key.to_owned()));
        self
    }

    pub(super) fn in_item(mut self, index: usize) -> Self {
        self.0.trail.push(Step::Index(index));
        self
    }

    /// Returns the path, such as `clusters[0].policy`.
    pub(crate) fn path(&self) -> String {
        let mut path = String::new();
        for step in self.0.trail.iter().rev() {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Key(key) => path = tree::join(&path, key),
            }
        }
        path
    }
}

impl Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for DecodeError {}

impl serde::de::Error for DecodeError {
    fn custom<T: Display>(text: T) -> Self {
        Self::of_text(&text.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::mismatch(&found, expected)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::mismatch(&found, expected)
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        Self::new(
            format!("`{}` is not one of the choices", short(found)),
            Some(choices::for_choice(found, expected)),
        )
    }

    fn unknown_field(found: &str, expected: &'static [&'static str]) -> Self {
        let help = fields::for_field(found, expected, &fields::Context::default());
        Self::new(format!("unknown field `{}`", short(found)), help).because(Cause::Field(expected))
    }
}

impl DecodeError {
    /// Splits a message of the form `problem; help` into message and help.
    fn of_text(text: &str) -> Self {
        // The path shows that it is a policy.
        let text = text.strip_prefix("policy ").unwrap_or(text);
        if text.ends_with("or `name(parameter=value, ...)`") && text.contains("`)` is missing") {
            let message = text.split("; ").next().unwrap_or(text);
            let help = "inside `{…}` and `[…]`, quote a policy with several parameters";
            return Self::new(message.into(), Some(help.into()));
        }
        match text.split_once("; ") {
            Some((message, help)) => Self::new(message.into(), Some(help.into())),
            None => Self::new(text.into(), None),
        }
    }

    fn mismatch(found: &Unexpected<'_>, expected: &dyn Expected) -> Self {
        let type_name = expected.to_string();
        let whole = |range: &str| format!("a whole number from {range}");
        let expected = match type_name.as_str() {
            "u8" => whole("0 to 255"),
            "u16" => whole("0 to 65535"),
            "u32" => whole("0 to 4294967295"),
            "u64" | "usize" => whole("0"),
            "f64" => "a number".into(),
            "a boolean" => "`true` or `false`".into(),
            "a sequence" => "a list".into(),
            text if text.starts_with("struct ") => "a mapping of fields".into(),
            text => text.to_owned(),
        };
        let help = match found {
            Unexpected::Str(text) if expected == "a list" => {
                Some(format!("write `[{}]`", short(text)))
            }
            Unexpected::Map if expected == "a list" => Some("start each item with `- `".into()),
            Unexpected::Seq if expected == "a mapping of fields" => {
                Some("write the fields without `- ` and without brackets".into())
            }
            _ => None,
        };
        let found = match found {
            Unexpected::Map => "a mapping".into(),
            Unexpected::Seq => "a list".into(),
            Unexpected::Unit | Unexpected::Option => "nothing".into(),
            Unexpected::Bool(value) => format!("`{value}`"),
            Unexpected::Signed(value) => format!("the number {value}"),
            Unexpected::Unsigned(value) => format!("the number {value}"),
            Unexpected::Float(value) => format!("the number {value}"),
            Unexpected::Str(text) => format!("the text `{}`", short(text)),
            other => other.to_string(),
        };
        Self::new(format!("expected {expected}, found {found}"), help)
            .because(Cause::Type(type_name))
    }
}
