//! Writes values as text.

use serde::Serialize;
use serde_yaml::Value;

use super::scalar::resolve;

/// A prefix that marks strings which need quotes. The prefix itself needs none.
const MARK: char = '\u{e000}';

/// Writes a value as YAML that has the same meaning in versions 1.1 and 1.2: strings that one version would read as
/// another type are quoted.
///
/// # Errors
/// If YAML cannot represent the value.
pub fn to_string<T: Serialize>(value: &T) -> Result<String, serde_yaml::Error> {
    let mut value = serde_yaml::to_value(value)?;
    // The library sets the quotes of version 1.2. Other texts that need them are marked, and quoted
    // afterwards.
    let text = serde_yaml::to_string(&value)?;
    let runs = text.split(|c| c != MARK).map(str::len);
    let longest = runs.max().unwrap_or(0) / MARK.len_utf8();
    let mark = String::from_iter(std::iter::repeat_n(MARK, longest + 1));
    match mark_texts(&mut value, &mark) {
        0 => Ok(text),
        _ => Ok(quoted(&serde_yaml::to_string(&value)?, &mark)),
    }
}

/// Returns whether a string without quotes would be read as another type.
fn needs_quotes(text: &str) -> bool {
    text == "<<" || !matches!(resolve(text), Some(serde_json::Value::String(_)))
}

/// Marks the strings and keys that need quotes; returns their number.
fn mark_texts(value: &mut Value, mark: &str) -> usize {
    match value {
        Value::String(text) if needs_quotes(text) => {
            text.insert_str(0, mark);
            1
        }
        Value::Sequence(items) => items.iter_mut().map(|one| mark_texts(one, mark)).sum(),
        Value::Mapping(fields) => {
            let mut marked = 0;
            let entries = std::mem::take(fields).into_iter();
            *fields = entries
                .map(|(mut key, mut value)| {
                    marked += mark_texts(&mut key, mark) + mark_texts(&mut value, mark);
                    (key, value)
                })
                .collect();
            marked
        }
        _ => 0,
    }
}

/// Adds quotes around marked strings. Strings that need quotes consist of letters, digits and a few signs, so each ends
/// before a line's end or the colon after a key.
fn quoted(text: &str, mark: &str) -> String {
    let mut pieces = text.split(mark);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(['\n', ':']).unwrap_or(piece.len());
        let (word, rest) = piece.split_at(end);
        out.push_str(&format!("'{word}'{rest}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::documents;
    use super::*;

    fn again(value: &Value) -> Value {
        let text = to_string(value).unwrap();
        let mut read = documents(&text).unwrap_or_else(|error| panic!("{error}\nin\n{text}"));
        assert_eq!(read.len(), 1, "{text}");
        // Read as version 1.2 it is the same.
        let newer: Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(newer, *value, "{text}");
        read.remove(0).value
    }

    #[test]
    fn texts_stay_texts_in_both_versions() {
        for text in [
            "",
            "~",
            "null",
            "y",
            "No",
            "on",
            "OFF",
            "true",
            "0644",
            "1_000",
            "0_7",
            "1_0.5",
            "0x1F",
            "0b11",
            "0o17",
            "+1",
            ".5",
            "1e3",
            ".inf",
            "-.NaN",
            "<<",
            "=",
            "1:30",
            "- a",
            "a: b",
            "#",
            "on # off",
            "yes\nno\n",
            "\u{e000}on",
            " on",
            "on ",
            "'on'",
            "\"on\"",
            "\t",
            "\u{85}",
            "é",
        ] {
            let value = json!({"key": text, "list": [text, {"deep": text}], "other": 1});
            assert_eq!(again(&value), value, "{text:?}");
            if !text.contains('\n') {
                let value = json!({text: text});
                assert_eq!(again(&value), value, "{text:?} as a key");
            }
        }
    }

    #[test]
    fn what_needs_no_quotes_has_none() {
        let text =
            to_string(&json!({"mode": "on", "name": "offset", "off": ["no", "v1", 1, true]}))
                .unwrap();
        assert_eq!(
            text,
            "mode: 'on'\nname: offset\n'off':\n- 'no'\n- v1\n- 1\n- true\n"
        );
    }
}
