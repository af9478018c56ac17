//! Parses texts into documents.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput, Tag};
use serde_json::{Map, Value};

use super::flow;
use super::scalar::resolve;

/// The maximum nesting depth. Resource definitions have a depth of about sixty; far deeper texts would exhaust the
/// stack.
const MAX_DEPTH: usize = 256;
/// The maximum number of values in a text; aliased values count each time they are used.
const MAX_VALUES: usize = 2_000_000;
/// The approximate maximum of the memory, in bytes, that aliases add. Other values take memory in proportion to the
/// text.
const MAX_ALIASED: usize = 4 << 20;
/// The approximate memory of a value in bytes, without its text but with its place in a mapping.
const VALUE_BYTES: usize = 128;

/// A document of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The line where the document begins, from 1.
    pub line: usize,
    /// The value of the document; never null.
    pub value: Value,
}

/// The reason why a text cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("document {document} at line {line}: {message}")]
pub struct ReadError {
    /// The number of the document, from 1.
    pub document: usize,
    /// The line of the error, from 1.
    pub line: usize,
    /// The error message.
    pub message: String,
}

/// Parses the nonempty documents of a text in YAML or JSON.
///
/// # Errors
/// The first error: the text is not YAML, a key is duplicate, Kubernetes has no such number or tag, there are more than
/// 2 000 000 values or 256 levels, or aliases add more than 4 MiB.
pub fn documents(text: &str) -> Result<Vec<Document>, ReadError> {
    match read(text) {
        Err(error) => match flow::indented(text) {
            Cow::Borrowed(_) => Err(error),
            Cow::Owned(text) => read(&text),
        },
        read => read,
    }
}

fn read(text: &str) -> Result<Vec<Document>, ReadError> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        document: 1,
        line: 1,
        values: 0,
        aliased: 0,
    };
    let (mut documents, mut begins) = (Vec::new(), 1);
    while let Some(event) = reader.next()? {
        match event {
            Event::DocumentStart(_) => {
                reader.anchors.clear();
                begins = reader.line;
            }
            Event::DocumentEnd | Event::Nothing | Event::StreamEnd | Event::StreamStart => {}
            event => {
                let value = reader.value(event, 0)?;
                if !value.is_null() {
                    documents.push(Document {
                        line: begins,
                        value,
                    });
                    reader.document = documents.len() + 1;
                }
            }
        }
    }
    Ok(documents)
}

/// Splits a text into its documents, each with the number of lines before it, so that an error in one document does not
/// prevent reading the others. A line that begins with `---` begins a document, in any context (YAML 1.2, 9.1.2).
#[must_use]
pub fn split(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut start, mut before) = (Vec::new(), 0, 0);
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let rest = line.strip_prefix("---");
        if rest.is_some_and(|rest| rest.trim_start() != rest || rest.is_empty())
            && !is_directives(&text[start..at])
        {
            found.push((before, &text[start..at]));
            (start, before) = (at, number);
        }
        at += line.len();
    }
    found.push((before, &text[start..]));
    found
}

/// Returns whether a text consists only of directives for the next document.
fn is_directives(text: &str) -> bool {
    let said = || {
        text.lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
    };
    said().next().is_some() && said().all(|line| line.starts_with('%'))
}

/// Removes the fields of mappings that are null, as the API server does before it stores a resource: `annotations:`
/// with nothing below it has no meaning.
pub fn without_nulls(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(without_nulls),
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        _ => {}
    }
}

/// Returns the resources of a document: the items of a `List`, or the document itself.
#[must_use]
pub fn items(mut document: Value) -> Vec<Value> {
    if document["kind"] != "List" {
        return vec![document];
    }
    match document["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// The anchored values, by their number.
    anchors: HashMap<usize, Anchored>,
    document: usize,
    line: usize,
    values: usize,
    /// The approximate memory that aliases have added, in bytes.
    aliased: usize,
}

/// An anchored value, with its costs.
struct Anchored {
    value: Value,
    values: usize,
    bytes: usize,
}

/// Returns the approximate memory of a value in bytes.
fn bytes(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::Array(list) => list.iter().map(bytes).sum(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| key.len() + bytes(value))
                .sum(),
            Value::String(text) => text.len(),
            Value::Bool(_) | Value::Null | Value::Number(_) => 0,
        }
}

impl<'a> Reader<'a> {
    fn fault(&self, message: impl Into<String>) -> ReadError {
        ReadError {
            document: self.document,
            line: self.line,
            message: message.into(),
        }
    }

    fn next(&mut self) -> Result<Option<Event<'a>>, ReadError> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, span))) => {
                self.line = span.start.line().max(1);
                Ok(Some(event))
            }
            Some(Err(error)) => {
                self.line = error.marker().line().max(1);
                Err(self.fault(error.info()))
            }
        }
    }

    fn count(&mut self, values: usize) -> Result<(), ReadError> {
        self.values = self.values.saturating_add(values);
        if self.values > MAX_VALUES {
            return Err(self.fault(format!("more than {MAX_VALUES} values")));
        }
        Ok(())
    }

    fn value(&mut self, event: Event<'a>, depth: usize) -> Result<Value, ReadError> {
        if depth > MAX_DEPTH {
            return Err(self.fault(format!("nested more than {MAX_DEPTH} levels deep")));
        }
        let before = self.values;
        self.count(1)?;
        let (anchor, value) = match event {
            Event::Alias(anchor) => {
                let Some(anchored) = self.anchors.get(&anchor) else {
                    return Err(self.fault("an alias inside the value of its own anchor"));
                };
                // Checked before it is copied.
                let (values, bytes) = (anchored.values, anchored.bytes);
                self.aliased = self.aliased.saturating_add(bytes);
                if self.aliased > MAX_ALIASED {
                    let most = MAX_ALIASED >> 20;
                    return Err(self.fault(format!(
                        "aliases expand to more than {most} MiB; write the values out"
                    )));
                }
                self.count(values)?;
                let anchored = self.anchors.get(&anchor);
                return Ok(anchored.map(|one| one.value.clone()).unwrap_or_default());
            }
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, self.scalar(&text, style, tag.as_deref())?)
            }
            Event::SequenceStart(anchor, tag) => {
                self.collection(tag.as_deref())?;
                (anchor, self.sequence(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                self.collection(tag.as_deref())?;
                (anchor, self.mapping(depth)?)
            }
            _ => return Err(self.fault("a value is missing")),
        };
        if anchor > 0 {
            let values = self.values - before;
            let bytes = bytes(&value);
            // The stored copy counts as well.
            self.aliased = self.aliased.saturating_add(bytes);
            if self.aliased > MAX_ALIASED {
                let most = MAX_ALIASED >> 20;
                return Err(self.fault(format!(
                    "anchors and aliases expand to more than {most} MiB; write the values out"
                )));
            }
            let value = value.clone();
            self.anchors.insert(
                anchor,
                Anchored {
                    value,
                    values,
                    bytes,
                },
            );
        }
        Ok(value)
    }

    fn scalar(
        &self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
    ) -> Result<Value, ReadError> {
        let resolved = match tag {
            None if style == ScalarStyle::Plain => resolve(text),
            None => Some(Value::from(text)),
            Some(tag) if tag.is_yaml_core_schema() => match &*tag.suffix {
                "str" => Some(Value::from(text)),
                "bool" | "float" | "int" | "null" => resolve(text),
                _ => return Err(self.meaningless(tag)),
            },
            Some(tag) => return Err(self.meaningless(tag)),
        };
        resolved.ok_or_else(|| self.fault(format!("`{text}` is not a number in Kubernetes")))
    }

    fn meaningless(&self, tag: &Tag) -> ReadError {
        self.fault(format!("unsupported tag `{tag}`"))
    }

    fn collection(&self, tag: Option<&Tag>) -> Result<(), ReadError> {
        match tag {
            Some(tag) if !(tag.is_yaml_core_schema() && matches!(&*tag.suffix, "map" | "seq")) => {
                Err(self.meaningless(tag))
            }
            _ => Ok(()),
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, ReadError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                None | Some(Event::SequenceEnd) => return Ok(Value::Array(items)),
                Some(event) => items.push(self.value(event, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, ReadError> {
        let (mut own, mut merged) = (Map::new(), Map::new());
        loop {
            let (key, merges) = match self.next()? {
                None | Some(Event::MappingEnd) => break,
                Some(Event::Scalar(text, style, _, tag)) => {
                    let merges = &*text == "<<" && style == ScalarStyle::Plain && tag.is_none();
                    let key = self.scalar(&text, style, tag.as_deref())?;
                    (self.key(key)?, merges)
                }
                Some(_) => return Err(self.fault("keys must be strings")),
            };
            if own.contains_key(&key) {
                return Err(self.fault(format!("`{key}` is defined twice")));
            }
            let Some(event) = self.next()? else {
                return Err(self.fault("a value is missing"));
            };
            let value = self.value(event, depth + 1)?;
            match merges {
                true => self.merge(&mut merged, value)?,
                false => {
                    own.insert(key, value);
                }
            }
        }
        merged.append(&mut own);
        Ok(Value::Object(merged))
    }

    /// Converts a key to a string, the only type of keys in JSON.
    fn key(&self, key: Value) -> Result<String, ReadError> {
        match key {
            Value::String(text) => Ok(text),
            Value::Bool(_) | Value::Number(_) => Ok(key.to_string()),
            _ => Err(self.fault("keys must be strings")),
        }
    }

    /// Merges the value of `<<`, such as `*defaults`, or a list of such values; existing fields are kept.
    fn merge(&self, into: &mut Map<String, Value>, value: Value) -> Result<(), ReadError> {
        let maps = match value {
            Value::Array(maps) => maps,
            one => vec![one],
        };
        for map in maps {
            let Value::Object(fields) = map else {
                return Err(self.fault("`<<` needs a mapping or a list of mappings"));
            };
            for (key, value) in fields {
                into.entry(key).or_insert(value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(text: &str) -> Value {
        let mut documents = documents(text).unwrap();
        assert_eq!(documents.len(), 1, "{text}");
        documents.remove(0).value
    }

    #[test]
    fn quotes_and_tags_make_texts() {
        let text =
            "a: 0644\nb: '0644'\nc: !!str 0644\nd: |-\n  yes\ne: !!int \"0644\"\non: off\n1: x\n";
        let expected = json!({"a": 420, "b": "0644", "c": "0644", "d": "yes", "e": 420, "true": false, "1": "x"});
        assert_eq!(one(text), expected);
    }

    #[test]
    fn aliases_and_merges_are_written_out() {
        let text =
            "a: &a {x: 1, y: [2]}\nb: *a\nc: {<<: *a, x: 3}\nd: {<<: [{x: 4}, *a]}\n'<<': e\n";
        let y = [2];
        let expected = json!({"a": {"x": 1, "true": y}, "b": {"x": 1, "true": y},
            "c": {"x": 3, "true": y}, "d": {"x": 4, "true": y}, "<<": "e"});
        assert_eq!(one(text), expected);
    }

    #[test]
    fn documents_begin_at_their_lines() {
        let text = "# nothing\n---\n---\na: 1\n---\n\n---\r\nb: 2\r\n...\n# nothing\n";
        let found = documents(text).unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.line, &one.value)).collect();
        assert_eq!(found, [(3, &json!({"a": 1})), (7, &json!({"b": 2}))]);
        assert_eq!(documents("").unwrap(), []);
        assert_eq!(documents("\u{feff}a: 1").unwrap()[0].line, 1);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let deep = "- ".repeat(300);
        let bomb = format!("- &a {:?}\n{}", vec![1; 3000], "- *a\n".repeat(1000));
        for (text, expected) in [
            (
                "a: 1\nb: 2\na: 3\n",
                "document 1 at line 3: `a` is defined twice",
            ),
            (
                "a: 1\n---\nb: .inf\n",
                "document 2 at line 3: `.inf` is not a number in Kubernetes",
            ),
            (
                "a: !!binary aGk=",
                "document 1 at line 1: unsupported tag `tag:yaml.org,2002:!binary`",
            ),
            (
                "a: !thing {}",
                "document 1 at line 1: unsupported tag `!thing`",
            ),
            ("? [a]\n: b\n", "document 1 at line 1: keys must be strings"),
            ("~: b\n", "document 1 at line 1: keys must be strings"),
            (
                "a: &a [*a]\n",
                "document 1 at line 1: an alias inside the value of its own anchor",
            ),
            ("a: {<<: 1}\n", "document 1 at line 1: `<<` needs a mapping"),
            (
                &deep,
                "document 1 at line 1: nested more than 256 levels deep",
            ),
            (
                &bomb,
                "aliases expand to more than 4 MiB; write the values out",
            ),
            ("a: [\n", "document 1 at line 2: "),
        ] {
            let error = documents(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
