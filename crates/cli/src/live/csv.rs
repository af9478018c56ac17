//! Records of comma-separated values (RFC 4180).

use serde_json::Value;

/// Formats a record with its line break.
pub(super) fn record(fields: impl IntoIterator<Item = String>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|field| quoted(&field)).collect();
    fields.join(",") + "\n"
}

/// Formats a value as a field: numbers as in JSON, absent values as an empty field, lists and objects as JSON.
pub(super) fn field(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

fn quoted(field: &str) -> String {
    let special = |sign: char| matches!(sign, ',' | '"' | '\n' | '\r');
    match field.contains(special) || field.trim() != field {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_quoted_where_needed() {
        let values = [
            json!("a"),
            json!("a,\"b\"\n"),
            json!(" a"),
            json!(1.5),
            json!(null),
        ];
        let list = json!([{"node": "n"}]);
        let fields = values.iter().chain([&list]).map(|value| field(Some(value)));
        let expected = "a,\"a,\"\"b\"\"\n\",\" a\",1.5,,\"[{\"\"node\"\":\"\"n\"\"}]\"\n";
        assert_eq!(record(fields), expected);
    }
}
