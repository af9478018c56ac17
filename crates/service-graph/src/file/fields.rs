//! Reads the fields of a mapping one by one, so that the remaining ones can be rejected.

use super::FileError;
use super::yaml::{Node, Value};
use crate::graph::GraphError;

/// A mapping, with the fields that have not been read yet.
pub(super) struct Fields {
    path: String,
    line: usize,
    entries: Vec<(Box<str>, Option<Node>)>,
    asked: Vec<&'static str>,
}

impl Fields {
    pub(super) fn new(path: String, node: Node) -> Result<Self, FileError> {
        match node.value {
            Value::Mapping(entries) => Ok(Self {
                path,
                line: node.line,
                entries: entries
                    .into_iter()
                    .map(|(key, node)| (key, Some(node)))
                    .collect(),
                asked: Vec::new(),
            }),
            other => Err(wrong(path, node.line, "a mapping", &other)),
        }
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    pub(super) fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() {
            field.to_owned()
        } else {
            format!("{}.{field}", self.path)
        }
    }

    /// Takes a field that may be absent or null.
    pub(super) fn optional(&mut self, field: &'static str) -> Option<Node> {
        self.asked.push(field);
        let entry = self.entries.iter_mut().find(|(key, _)| **key == *field);
        let node = entry.and_then(|(_, node)| node.take())?;
        match &node.value {
            Value::Scalar { text, plain: true } if matches!(&**text, "" | "~" | "null") => None,
            _ => Some(node),
        }
    }

    pub(super) fn required(&mut self, field: &'static str) -> Result<Node, FileError> {
        let (path, line) = (self.path_of(field), self.line);
        self.optional(field)
            .ok_or(FileError::Missing { line, path })
    }

    pub(super) fn name(&mut self, field: &'static str) -> Result<String, FileError> {
        let node = self.required(field)?;
        match node.value {
            Value::Scalar { text, .. } => Ok(text.into()),
            other => Err(wrong(self.path_of(field), node.line, "a name", &other)),
        }
    }

    /// Takes a whole number.
    pub(super) fn whole(&mut self, field: &'static str) -> Result<u64, FileError> {
        let node = self.required(field)?;
        whole(self.path_of(field), &node)
    }

    pub(super) fn optional_whole(&mut self, field: &'static str) -> Result<Option<u64>, FileError> {
        let path = self.path_of(field);
        self.optional(field)
            .map(|node| whole(path, &node))
            .transpose()
    }

    /// Takes a number of any value; the caller checks its range.
    pub(super) fn number(&mut self, field: &'static str) -> Result<f64, FileError> {
        let node = self.required(field)?;
        number(self.path_of(field), &node)
    }

    pub(super) fn optional_number(&mut self, field: &'static str) -> Result<f64, FileError> {
        let path = self.path_of(field);
        let node = self.optional(field);
        node.map_or(Ok(0.0), |node| number(path, &node))
    }

    /// Takes a number from 0 to 10^15 that may be absent.
    pub(super) fn weight(&mut self, field: &'static str) -> Result<Option<f64>, FileError> {
        let path = self.path_of(field);
        let Some(node) = self.optional(field) else {
            return Ok(None);
        };
        let (line, value) = (node.line, number(path, &node)?);
        if (0.0..=1e15).contains(&value) {
            return Ok(Some(value));
        }
        Err(FileError::Graph {
            line,
            path: self.path.clone(),
            error: GraphError::Weight { field, value },
        })
    }

    /// Takes `true` or `false`; `false` if the field is absent.
    pub(super) fn flag(&mut self, field: &'static str) -> Result<bool, FileError> {
        let Some(node) = self.optional(field) else {
            return Ok(false);
        };
        match &node.value {
            Value::Scalar { text, plain: true } if matches!(&**text, "true" | "false") => {
                Ok(&**text == "true")
            }
            other => {
                let expected = "true or false";
                Err(wrong(self.path_of(field), node.line, expected, other))
            }
        }
    }

    /// Ignores fields that are read elsewhere.
    pub(super) fn pass_over(&mut self, fields: &[&'static str]) {
        for field in fields {
            self.optional(field);
        }
    }

    /// Returns whether there is a field with this name, null or not.
    pub(super) fn has(&self, field: &str) -> bool {
        self.entries.iter().any(|(key, _)| **key == *field)
    }

    /// Takes the items of a list, each with its path; none if the list is absent.
    pub(super) fn list(&mut self, field: &'static str) -> Result<Vec<(String, Node)>, FileError> {
        let path = self.path_of(field);
        let Some(node) = self.optional(field) else {
            return Ok(Vec::new());
        };
        match node.value {
            Value::Sequence(items) => Ok(items
                .into_iter()
                .enumerate()
                .map(|(index, item)| (format!("{path}[{index}]"), item))
                .collect()),
            other => Err(wrong(path, node.line, "a list", &other)),
        }
    }

    /// Rejects unknown fields.
    pub(super) fn finish(self) -> Result<(), FileError> {
        let unknown = self.entries.iter().find_map(|(key, node)| {
            let node = node.as_ref()?;
            (!self.asked.contains(&&**key)).then_some((key, node.line))
        });
        match unknown {
            None => Ok(()),
            Some((key, line)) => Err(FileError::UnknownField {
                line,
                path: self.path_of(key),
                known: self.asked.join(", "),
            }),
        }
    }
}

/// Returns the entries of a mapping whose keys are names, each with its path.
pub(super) fn entries(path: &str, node: Node) -> Result<Vec<(String, String, Node)>, FileError> {
    match node.value {
        Value::Mapping(entries) => Ok(entries
            .into_iter()
            .map(|(key, node)| (format!("{path}.{key}"), key.into(), node))
            .collect()),
        other => Err(wrong(path.to_owned(), node.line, "a mapping", &other)),
    }
}

/// Converts a value to a whole number, 0 or more, which may be written with a fraction of 0.
pub(super) fn whole(path: String, node: &Node) -> Result<u64, FileError> {
    const EXPECTED: &str = "a whole number from 0 to 10^12";
    // Sums over everything that a file can hold stay within 64 bits.
    const MOST: u64 = 1_000_000_000_000;
    let Value::Scalar { text, plain: true } = &node.value else {
        return Err(wrong(path, node.line, EXPECTED, &node.value));
    };
    let exact = text.parse::<u64>().ok().or_else(|| {
        let number = text.parse::<f64>().ok()?;
        let fits = number.fract() == 0.0 && (0.0..9e15).contains(&number);
        fits.then_some(number as u64)
    });
    let exact = exact.filter(|number| *number <= MOST);
    exact.ok_or_else(|| wrong(path, node.line, EXPECTED, &node.value))
}

pub(super) fn number(path: String, node: &Node) -> Result<f64, FileError> {
    let Value::Scalar { text, plain: true } = &node.value else {
        return Err(wrong(path, node.line, "a number", &node.value));
    };
    let number = match &**text {
        ".nan" | ".NaN" | ".NAN" => Ok(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" => Ok(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Ok(f64::NEG_INFINITY),
        text => text.parse(),
    };
    number.map_err(|_| wrong(path, node.line, "a number", &node.value))
}

fn wrong(path: String, line: usize, expected: &'static str, found: &Value) -> FileError {
    let found = match found {
        Value::Mapping(_) => "a mapping".to_owned(),
        Value::Scalar { text, plain: true } => format!("`{text}`"),
        Value::Scalar { text, plain: false } => format!("the text \"{text}\""),
        Value::Sequence(_) => "a list".to_owned(),
    };
    let path = match path.is_empty() {
        true => "the file".to_owned(),
        false => path,
    };
    FileError::Expected {
        line,
        path,
        expected,
        found,
    }
}
