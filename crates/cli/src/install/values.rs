//! What can be chosen: the chart's `values.yaml`, files with others, and `--set`.

use serde_json::{Map, Value};

/// Values below which anything may stand: they are handed to Kubernetes as they are.
const FREE: [&str; 3] = ["meshConfig", "nodeSelector", "resources"];

/// Why a value cannot be set.
#[derive(Debug, thiserror::Error)]
pub(super) enum ValuesError {
    #[error("{place}: {message}")]
    Syntax { place: String, message: String },
    #[error("{place}: `{path}` is {wanted}, as its default is")]
    Kind {
        place: String,
        path: String,
        wanted: &'static str,
    },
    #[error("{place}: there is no value `{path}`; those there are: maglor install --values-only")]
    Unknown { place: String, path: String },
}

/// Reads a document of values.
pub(super) fn parse(place: &str, text: &str) -> Result<Value, ValuesError> {
    let documents = maglor_inject::yaml::documents(text);
    let documents = documents.map_err(|error| syntax(place, &error.to_string()))?;
    let mut values = documents.into_iter().map(|document| document.value);
    match (values.next(), values.next()) {
        (None, _) => Ok(Value::Object(Map::new())),
        (Some(values @ Value::Object(_)), None) => Ok(values),
        (Some(_), None) => Err(syntax(place, "must be `KEY: VALUE`")),
        (Some(_), Some(_)) => Err(syntax(place, "must be one document")),
    }
}

fn syntax(place: &str, message: &str) -> ValuesError {
    ValuesError::Syntax {
        place: place.to_owned(),
        message: message.to_owned(),
    }
}

/// Reads `a.b=value,c=value` as Helm does: `true`, `false`, `null` and whole numbers are what they look like, `{a,b}` is a
/// list, everything else is text. What stands behind a backslash is only itself: `nodeSelector.kubernetes\.io/os=linux`.
pub(super) fn parse_set(text: &str) -> Result<Vec<Value>, ValuesError> {
    let place = format!("--set {text}");
    let each = split(text, ',').into_iter();
    let read = each.map(|pair| parse_pair(pair).ok_or_else(|| syntax(&place, "must be KEY=VALUE")));
    read.collect()
}

fn parse_pair(pair: &str) -> Option<Value> {
    let path = *split(pair, '=').first()?;
    let value = pair.get(path.len() + 1..)?;
    let path = split(path, '.').into_iter().map(unescaped);
    let path: Vec<String> = path.collect();
    if path.iter().any(String::is_empty) {
        return None;
    }
    let list = value.strip_prefix('{');
    let value = match list.and_then(|list| list.strip_suffix('}')) {
        Some(list) => {
            let items = split(list, ',').into_iter();
            items.map(|item| scalar(&unescaped(item.trim()))).collect()
        }
        None => scalar(&unescaped(value)),
    };
    let nest = |value, name: String| Value::Object([(name, value)].into_iter().collect());
    Some(path.into_iter().rev().fold(value, nest))
}

/// The parts of a text between separators, those behind a backslash or in a list apart.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut escaped, mut in_list, mut last) = (false, false, ' ');
    for (at, c) in text.char_indices() {
        let plain = !std::mem::take(&mut escaped);
        match c {
            '\\' if plain => escaped = true,
            '{' if plain && last == '=' => in_list = true,
            '}' if plain => in_list = false,
            _ if plain && !in_list && c == separator => {
                parts.push(&text[begin..at]);
                begin = at + c.len_utf8();
            }
            _ => {}
        }
        last = c;
    }
    parts.push(&text[begin..]);
    parts
}

/// Without the backslashes that only say that what follows is itself.
fn unescaped(text: &str) -> String {
    let mut escaped = false;
    text.chars()
        .filter(|c| {
            escaped = *c == '\\' && !escaped;
            !escaped
        })
        .collect()
}

fn scalar(text: &str) -> Value {
    match text {
        "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match text.parse::<i64>() {
            // Not `007`: that is a name.
            Ok(number) if number.to_string() == text => Value::from(number),
            _ => Value::from(text),
        },
    }
}

/// Puts values over others; maps are merged, everything else is replaced.
pub(super) fn merge(place: &str, base: &mut Value, over: Value) -> Result<(), ValuesError> {
    merge_at(place, &mut String::new(), base, over)
}

fn merge_at(
    place: &str,
    path: &mut String,
    base: &mut Value,
    over: Value,
) -> Result<(), ValuesError> {
    let free = FREE
        .iter()
        .any(|name| path.split('.').next() == Some(*name));
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (name, value) in over {
                let length = path.len();
                if length > 0 {
                    path.push('.');
                }
                path.push_str(&name);
                match base.get_mut(&name) {
                    Some(old) => merge_at(place, path, old, value)?,
                    None if free => {
                        base.insert(name, value);
                    }
                    None => {
                        return Err(ValuesError::Unknown {
                            place: place.to_owned(),
                            path: path.clone(),
                        });
                    }
                }
                path.truncate(length);
            }
        }
        (base, over) => {
            if let Some(wanted) = wanted(base, &over).filter(|_| !free) {
                return Err(ValuesError::Kind {
                    place: place.to_owned(),
                    path: path.clone(),
                    wanted,
                });
            }
            *base = over;
        }
    }
    Ok(())
}

/// What a value has to be in place of its default, where it is something else.
fn wanted(default: &Value, value: &Value) -> Option<&'static str> {
    let fits = match default {
        Value::Array(_) => value.is_array(),
        Value::Bool(_) => value.is_boolean(),
        Value::Null => true,
        // Of pods, a share is a number, too.
        Value::Number(_) => {
            let share = value.as_str().and_then(|text| text.strip_suffix('%'));
            value.is_u64() || share.is_some_and(|share| share.parse::<u8>().is_ok())
        }
        Value::Object(_) => value.is_object(),
        Value::String(_) => !(value.is_array() || value.is_object()),
    };
    let wanted = match default {
        Value::Array(_) => "a list",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number, 0 or more",
        Value::Object(_) => "a mapping",
        Value::Null | Value::String(_) => "one text",
    };
    (!fits).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_set_as_helm_sets_them() {
        for (text, expected) in [
            ("a=1", json!([{"a": 1}])),
            ("a.b=x=y", json!([{"a": {"b": "x=y"}}])),
            ("a=007", json!([{"a": "007"}])),
            ("a=true", json!([{"a": true}])),
            ("a={x, 2}", json!([{"a": ["x", 2]}])),
            ("a={}", json!([{"a": [""]}])),
            ("a=", json!([{"a": ""}])),
            (
                "a=1,b.c={x,y},d=z",
                json!([{"a": 1}, {"b": {"c": ["x", "y"]}}, {"d": "z"}]),
            ),
            (r"a=22\,80,b=x{y", json!([{"a": "22,80"}, {"b": "x{y"}])),
            (r"a.b\.io/c=d\\e", json!([{"a": {"b.io/c": r"d\e"}}])),
            (r"a={x\,y,z}", json!([{"a": ["x,y", "z"]}])),
        ] {
            assert_eq!(json!(parse_set(text).unwrap()), expected, "{text}");
        }
        for text in ["a", "=1", "a..b=1", "a=1,", "a=1,b"] {
            assert!(parse_set(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_value_that_there_is_not_is_refused() {
        let mut base = json!({"a": {"b": 1}, "resources": {}, "tolerations": []});
        merge(
            "f",
            &mut base,
            json!({"a": {"b": 2}, "resources": {"limits": {"cpu": 1}}}),
        )
        .unwrap();
        assert_eq!(base["a"]["b"], 2);
        assert_eq!(base["resources"]["limits"]["cpu"], 1);
        for (path, value) in [
            ("a", json!(5)),
            ("a.b", json!("x")),
            ("a.b", json!(-1)),
            ("tolerations", json!("x")),
        ] {
            let nested = path
                .rsplit('.')
                .fold(value.clone(), |value, name| json!({name: value}));
            let error = merge("f", &mut base, nested).unwrap_err().to_string();
            assert!(error.starts_with(&format!("f: `{path}` is ")), "{error}");
        }
        merge("f", &mut base, json!({"a": {"b": "50%"}})).unwrap();
        let error = merge("--set a.c=1", &mut base, json!({"a": {"c": 1}})).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("--set a.c=1: there is no value `a.c`"),
            "{error}"
        );
    }
}
