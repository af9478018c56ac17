//! Values of the chart: merges the chart's `values.yaml`, files with other values, and `--set`, as Helm does, and
//! validates the result against the chart's `values.schema.json`.

use serde_json::{Map, Value};

use super::schema::{self, Fault};

/// Maximum index of a list; larger ones are rejected, as by Helm.
const MAX_INDEX: usize = 65_536;
/// Maximum depth of keys; deeper ones are rejected, as by Helm.
const MAX_DEPTH: usize = 30;

/// Reason why a value cannot be set.
#[derive(Debug, thiserror::Error)]
pub(super) enum ValuesError {
    #[error("{place}: {message}")]
    Syntax { place: String, message: String },
    #[error("{place}: {path}: {reason}")]
    Refused {
        place: String,
        path: String,
        reason: String,
    },
}

/// The values chosen by a user, source by source. Later sources take precedence.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    values: Map<String, Value>,
    /// The values of each source, for messages.
    sources: Vec<(String, Value)>,
}

impl Chosen {
    /// Adds a file of values.
    pub(super) fn add_file(&mut self, place: &str, text: &str) -> Result<(), ValuesError> {
        let values = parse(place, text)?;
        self.sources.push((place.to_owned(), values.clone()));
        if let Value::Object(values) = values {
            merge(&mut self.values, values);
        }
        Ok(())
    }

    /// Adds the values of one `--set` option.
    pub(super) fn add_set(&mut self, text: &str) -> Result<(), ValuesError> {
        let place = format!("--set {text}");
        let refused = |message: String| syntax(&place, &message);
        let mut own = Value::Object(Map::new());
        let mut all = Value::Object(std::mem::take(&mut self.values));
        for (path, value) in parse_set(text).map_err(refused)? {
            assign(&mut own, &path, value.clone()).map_err(refused)?;
            assign(&mut all, &path, value).map_err(refused)?;
        }
        if let Value::Object(all) = all {
            self.values = all;
        }
        self.sources.push((place, own));
        Ok(())
    }

    /// Merges these values into the chart's, and validates the result against the schema.
    pub(super) fn over(self, defaults: Value, schema: &Value) -> Result<Value, ValuesError> {
        let mut all = self.values;
        if let Value::Object(defaults) = defaults {
            under(&mut all, defaults);
        }
        let mut all = Value::Object(all);
        whole_numbers(&mut all);
        match schema::check(schema, &all) {
            None => Ok(all),
            Some(fault) => Err(refused(&self.sources, &fault)),
        }
    }
}

/// Returns the fault together with the last source that sets the value or a parent of it.
fn refused(sources: &[(String, Value)], fault: &Fault) -> ValuesError {
    let sets = |value: &Value| {
        let mut value = value;
        for name in &fault.path {
            let inner = match value {
                Value::Array(list) => name.parse().ok().and_then(|index: usize| list.get(index)),
                Value::Object(map) => map.get(name),
                _ => return true,
            };
            match inner {
                Some(inner) => value = inner,
                None => return false,
            }
        }
        true
    };
    let place = sources.iter().rev().find(|(_, value)| sets(value));
    ValuesError::Refused {
        place: place.map_or("values", |(place, _)| place).to_owned(),
        path: fault.path.join("."),
        reason: fault.reason.clone(),
    }
}

/// Parses a document of values.
pub(super) fn parse(place: &str, text: &str) -> Result<Value, ValuesError> {
    let documents = maglor_manifests::inject::yaml::documents(text);
    let documents = documents.map_err(|error| syntax(place, &error.to_string()))?;
    let mut values = documents.into_iter().map(|document| document.value);
    match (values.next(), values.next()) {
        (None | Some(Value::Null), None) => Ok(Value::Object(Map::new())),
        (Some(values @ Value::Object(_)), None) => Ok(values),
        (_, None) => Err(syntax(place, "must be `KEY: VALUE`")),
        (_, Some(_)) => Err(syntax(place, "must be a single YAML document")),
    }
}

fn syntax(place: &str, message: &str) -> ValuesError {
    ValuesError::Syntax {
        place: place.to_owned(),
        message: message.to_owned(),
    }
}

/// One step of a key.
#[derive(Debug, Eq, PartialEq)]
enum Step {
    Name(String),
    Index(usize),
}

/// Parses `a.b=value,c[0]=value` as Helm does: `true`, `false`, `null` and whole numbers have their types, `{a,b}` is
/// a list, everything else is a string. A character after a backslash is literal:
/// `nodeSelector.kubernetes\.io/os=linux`. Keys that Helm would drop silently (`=1`, `a..b=1`) are rejected.
fn parse_set(text: &str) -> Result<Vec<(Vec<Step>, Value)>, String> {
    let mut rest = Scanner(text);
    let mut pairs = Vec::new();
    while !rest.0.is_empty() {
        let path = parse_key(&mut rest)?;
        pairs.push((path, parse_value(&mut rest)?));
    }
    Ok(pairs)
}

/// The unread rest of a text.
struct Scanner<'a>(&'a str);

impl Scanner<'_> {
    /// Reads up to one of the ends, removing backslashes, and returns the text and this end; `None` at the end of the
    /// text.
    fn until(&mut self, ends: &[char]) -> (String, Option<char>) {
        let mut read = String::new();
        let mut chars = self.0.chars();
        let mut end = None;
        while let Some(c) = chars.next() {
            if ends.contains(&c) {
                end = Some(c);
                break;
            }
            read.extend(match c {
                '\\' => chars.next(),
                c => Some(c),
            });
        }
        self.0 = chars.as_str();
        (read, end)
    }

    fn take(&mut self, prefix: char) -> bool {
        let rest = self.0.strip_prefix(prefix);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

fn parse_key(rest: &mut Scanner<'_>) -> Result<Vec<Step>, String> {
    let mut path = Vec::new();
    loop {
        let (name, mut end) = rest.until(&['=', '[', ',', '.']);
        if name.is_empty() {
            return Err("must be KEY=VALUE; a part of the key is empty".to_owned());
        }
        path.push(Step::Name(name));
        while end == Some('[') {
            let (index, _) = rest.until(&[']']);
            let number = index.parse().ok().filter(|index| *index <= MAX_INDEX);
            let number = number
                .ok_or_else(|| format!("`[{index}]` is not an index from 0 to {MAX_INDEX}"))?;
            path.push(Step::Index(number));
            end = rest.0.chars().next();
            rest.0 = end.map_or("", |end| &rest.0[end.len_utf8()..]);
        }
        match end {
            Some('=') => return Ok(path),
            Some('.') if path.len() <= MAX_DEPTH => {}
            Some('.') => return Err(format!("the key has more than {MAX_DEPTH} parts")),
            _ => return Err("must be KEY=VALUE".to_owned()),
        }
    }
}

fn parse_value(rest: &mut Scanner<'_>) -> Result<Value, String> {
    if !rest.take('{') {
        return Ok(scalar(&rest.until(&[',']).0));
    }
    let mut items = Vec::new();
    loop {
        let (item, end) = rest.until(&[',', '}']);
        items.push(scalar(&item));
        match end {
            Some('}') if rest.0.is_empty() || rest.take(',') => return Ok(Value::Array(items)),
            Some('}') => {
                return Err("a list must be followed by a comma or the end of the text".to_owned());
            }
            Some(_) => {}
            None => return Err("a list must end with `}`".to_owned()),
        }
    }
}

fn scalar(text: &str) -> Value {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    if is("null") {
        return Value::Null;
    }
    if is("true") || is("false") {
        return Value::Bool(is("true"));
    }
    // `007` is not a number but a name.
    let number = Some(text).filter(|text| *text == "0" || !text.starts_with('0'));
    let number = number.and_then(|text| text.parse::<i64>().ok());
    number.map_or_else(|| Value::from(text), Value::from)
}

/// Sets one value; missing parent lists and mappings are created.
fn assign(base: &mut Value, path: &[Step], value: Value) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else {
        *base = value;
        return Ok(());
    };
    let inner = match (step, base) {
        (Step::Name(name), Value::Object(map)) => {
            if map.get(name).is_some_and(Value::is_null) && !rest.is_empty() {
                return Err(format!("`{name}` is null and has no fields"));
            }
            map.entry(name.clone()).or_insert(Value::Null)
        }
        (Step::Index(index), Value::Array(list)) => {
            if list.len() <= *index {
                list.resize(index + 1, Value::Null);
            }
            list.get_mut(*index).ok_or("no such index")?
        }
        (Step::Name(name), _) => return Err(format!("the parent of `{name}` is not a mapping")),
        (Step::Index(index), _) => return Err(format!("the parent of `[{index}]` is not a list")),
    };
    if inner.is_null() {
        match rest.first() {
            Some(Step::Name(_)) => *inner = Value::Object(Map::new()),
            Some(Step::Index(_)) => *inner = Value::Array(Vec::new()),
            None => {}
        }
    }
    assign(inner, rest, value)
}

/// Merges values into others. Mappings are merged; other values are replaced.
fn merge(base: &mut Map<String, Value>, over: Map<String, Value>) {
    for (name, value) in over {
        match (base.get_mut(&name), value) {
            (Some(Value::Object(base)), Value::Object(over)) => merge(base, over),
            (_, value) => {
                base.insert(name, value);
            }
        }
    }
}

/// Adds defaults to values; null removes a default.
fn under(values: &mut Map<String, Value>, defaults: Map<String, Value>) {
    for (name, default) in defaults {
        match (values.get_mut(&name), default) {
            (None, default) => {
                values.insert(name, default);
            }
            (Some(Value::Null), _) => {
                values.remove(&name);
            }
            (Some(Value::Object(values)), Value::Object(defaults)) => under(values, defaults),
            (Some(_), _) => {}
        }
    }
}

/// Writes `3.0` as `3`, as Helm does.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0);
            let whole = whole.and_then(|number| format!("{number:.0}").parse::<i64>().ok());
            if let Some(whole) = whole {
                *value = Value::from(whole);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chosen(sets: &[&str]) -> Result<Value, ValuesError> {
        let mut chosen = Chosen::default();
        for text in sets {
            chosen.add_set(text)?;
        }
        Ok(Value::Object(chosen.values))
    }

    #[test]
    fn values_are_set_as_helm_sets_them() {
        for (text, expected) in [
            ("", json!({})),
            ("a=1", json!({"a": 1})),
            ("a.b=x=y", json!({"a": {"b": "x=y"}})),
            ("a=007,b=-5,c=+5", json!({"a": "007", "b": -5, "c": 5})),
            (
                "a=true,b=False,c=NULL",
                json!({"a": true, "b": false, "c": null}),
            ),
            ("a={x, 2,3}", json!({"a": ["x", " 2", 3]})),
            ("a={}", json!({"a": [""]})),
            ("a=", json!({"a": ""})),
            (
                "a=1,b.c={x,y},d=z,",
                json!({"a": 1, "b": {"c": ["x", "y"]}, "d": "z"}),
            ),
            (r"a=22\,80,b=x{y", json!({"a": "22,80", "b": "x{y"})),
            (r"a.b\.io/c=d\\e", json!({"a": {"b.io/c": r"d\e"}})),
            (r"a={x\,y,z}", json!({"a": ["x,y", "z"]})),
            (
                "a[1].b=x,a[0]=y,a[1].c[0]=z",
                json!({"a": ["y", {"b": "x", "c": ["z"]}]}),
            ),
        ] {
            assert_eq!(chosen(&[text]).unwrap(), expected, "{text}");
        }
        for text in [
            "a",
            "=1",
            "a..b=1",
            "a=1,b",
            "a[=1",
            "a[x]=1",
            "a[-1]=1",
            "a[70000]=1",
            "a[0]b=1",
            "a={x",
            "a={x}y=1",
            "a=1,a.b=2",
            "a={x},a.b=2",
            "a.b=1,a[0]=2",
        ] {
            assert!(chosen(&[text]).is_err(), "{text}");
        }
        let both = chosen(&["a.b=1,c={x}", "a.d=2,c[1]=y"]).unwrap();
        assert_eq!(both, json!({"a": {"b": 1, "d": 2}, "c": ["x", "y"]}));
    }

    #[test]
    fn null_takes_a_default_away() {
        let mut chosen = Chosen::default();
        chosen
            .add_file("f", "a: {b: null, x: null}\nc: 3.0")
            .unwrap();
        let values = chosen.over(json!({"a": {"b": 1, "d": 2}, "c": 1}), &json!({}));
        assert_eq!(values.unwrap(), json!({"a": {"d": 2, "x": null}, "c": 3}));
    }

    #[test]
    fn a_fault_names_the_last_source_that_sets_the_value() {
        let schema =
            json!({"properties": {"a": {"type": "string"}}, "additionalProperties": false});
        let mut chosen = Chosen::default();
        chosen.add_file("f", "a: 1").unwrap();
        chosen.add_set("a=x").unwrap();
        chosen.add_set("b=x").unwrap();
        chosen.add_file("g", "a: [1]").unwrap();
        chosen.add_set("b=y").unwrap();
        let error = chosen.over(json!({}), &schema).unwrap_err().to_string();
        assert_eq!(error, "g: a: expected a string, found a list");
        let mut chosen = Chosen::default();
        chosen.add_set("aa=x").unwrap();
        let error = chosen.over(json!({}), &schema).unwrap_err().to_string();
        assert_eq!(error, "--set aa=x: aa: unknown key; did you mean `a`?");
    }
}
