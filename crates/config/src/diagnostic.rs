//! Problems of a configuration with their positions: one [`Diagnostic`] each.
//!
//! They are displayed as by compilers:
//!
//! ```text
//! maglor.yaml:12:14: error: listeners[0].http.routes: there is no route table `mian`
//!    |
//! 12 |     routes: mian
//!    |             ^^^^
//!    = help: did you mean `main`?
//! ```

use std::fmt;

/// Whether a configuration can be used despite a problem.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// The configuration is rejected.
    Error,
    /// The configuration is used, but probably does not do what its author meant.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// The origin of a problem.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Origin {
    /// A file as a whole, for example because it cannot be read.
    File(String),
    /// A command line flag.
    Flag(String),
    /// A place in a file.
    Place {
        /// The file's name, as given.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The column, from 1, in characters.
        column: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => f.write_str(file),
            Self::Flag(flag) => f.write_str(flag),
            Self::Place { file, line, column } => write!(f, "{file}:{line}:{column}"),
        }
    }
}

/// The source line of a place, with the part to underline.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snippet {
    /// The number of the line, from 1.
    pub line: usize,
    /// The text of the line, shortened if it is very long.
    pub text: String,
    /// The number of characters before the underlined part.
    pub start: usize,
    /// The number of underlined characters, at least 1.
    pub length: usize,
}

/// One problem.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Diagnostic {
    /// Whether the configuration is rejected.
    pub severity: Severity,
    /// Where the problem is.
    pub origin: Origin,
    /// The path of the value, for example `listeners[0].filter_chains[1].http.routes`; empty for the whole
    /// configuration.
    pub path: String,
    /// The description of the problem.
    pub message: String,
    /// A suggested fix; `None` if there is none.
    pub help: Option<String>,
    /// The source line; `None` if there is none to show.
    pub snippet: Option<Snippet>,
    /// Another place that belongs to the problem, such as the first of two equal names; `None` if there is none.
    pub note: Option<String>,
}

/// The maximum number of characters of a text that are shown, since a name can be as long as the file.
const SHOWN: usize = 2000;

/// Displays a text, shortened if it is very long.
struct Bounded<'a>(&'a str);

impl fmt::Display for Bounded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{}…", &self.0[..end]),
            None => f.write_str(self.0),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.origin, self.severity)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", Bounded(&self.path))?;
        }
        Bounded(&self.message).fmt(f)?;
        let mut margin = 1;
        if let Some(snippet) = &self.snippet {
            margin = snippet.line.to_string().len();
            let (blank, start) = (" ".repeat(margin), " ".repeat(snippet.start));
            let carets = "^".repeat(snippet.length.max(1));
            write!(f, "\n{blank} |\n{} | {}", snippet.line, snippet.text)?;
            write!(f, "\n{blank} | {start}{carets}")?;
        }
        let blank = " ".repeat(margin);
        for (word, text) in [("note", &self.note), ("help", &self.help)] {
            if let Some(text) = text {
                write!(f, "\n{blank} = {word}: {}", Bounded(text))?;
            }
        }
        Ok(())
    }
}

/// The reasons why a configuration is rejected: all errors of the file, in its order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Errors(pub Vec<Diagnostic>);

impl std::error::Error for Errors {}

impl Errors {
    /// Creates an error about a whole file.
    pub(crate) fn file(file: &str, message: String, help: Option<String>) -> Self {
        Self(vec![Diagnostic {
            severity: Severity::Error,
            origin: Origin::File(file.to_owned()),
            path: String::new(),
            message,
            help,
            snippet: None,
            note: None,
        }])
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_not_as_long_as_its_file() {
        let name = "ä".repeat(1_000_000);
        let yaml = format!(
            "listeners: [{{name: l, address: '127.0.0.1:80', tcp: {{cluster: {name}}}}}]\n\
             clusters: [{{name: {name}, endpoints: ['127.0.0.1:1'], policy: {name}}}, {{name: {name}}}]\n"
        );
        let errors = crate::parse(&yaml, "a.yaml").unwrap_err();
        let said = errors.to_string();
        let most = errors.0.len() * 4 * 2 * (SHOWN + 100);
        assert!(said.len() < most, "{} bytes", said.len());
        assert!(said.contains('…'));
    }
}
