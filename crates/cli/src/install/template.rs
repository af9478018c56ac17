//! The part of Helm's templates that our chart is written in: so that `helm install` and `maglor install` render the
//! same files. What is not understood is an error, never text.
//!
//! ```text
//! {{ .Values.a.b }}   {{ .Release.Namespace }}   | quote   | toJson   | toYaml   | nindent N
//! {{- if .Values.a }} … {{- else }} … {{- end }}       {{- and -}} take the white space beside them
//! ```

use serde_json::Value;

/// Why a template cannot be rendered.
#[derive(Debug, thiserror::Error)]
#[error("{file}, line {line}: {reason}")]
pub(super) struct TemplateError {
    file: &'static str,
    line: usize,
    reason: String,
}

/// A template, cut at its actions.
enum Piece<'a> {
    Text(&'a str),
    Action { code: &'a str, line: usize },
}

/// What surrounds a place: a condition that holds, or not.
struct Branch {
    /// The text of this branch is taken.
    taken: bool,
    /// That of the other one would be.
    other: bool,
}

/// Renders one file; `data` has the fields `Values` and `Release`.
pub(super) fn render(
    file: &'static str,
    text: &str,
    data: &Value,
) -> Result<String, TemplateError> {
    let mut out = String::new();
    let mut branches: Vec<Branch> = Vec::new();
    for piece in cut(text).map_err(|(line, reason)| TemplateError { file, line, reason })? {
        let taken = branches.iter().all(|branch| branch.taken);
        let (code, line) = match piece {
            Piece::Text(text) if taken => {
                out.push_str(text);
                continue;
            }
            Piece::Text(_) => continue,
            Piece::Action { code, line } => (code, line),
        };
        let failed = |reason: String| TemplateError { file, line, reason };
        match code.split_whitespace().next() {
            Some("if") => {
                let value = find(code.trim_start_matches("if").trim(), data).map_err(failed)?;
                let holds = is_true(value);
                branches.push(Branch {
                    taken: holds,
                    other: !holds,
                });
            }
            Some("else") if code == "else" => match branches.last_mut() {
                Some(branch) => branch.taken = std::mem::take(&mut branch.other),
                None => return Err(failed("`else` without `if`".to_owned())),
            },
            Some("end") if code == "end" => match branches.pop() {
                Some(_) => {}
                None => return Err(failed("`end` without `if`".to_owned())),
            },
            _ if taken => out.push_str(&evaluate(code, data).map_err(failed)?),
            _ => {}
        }
    }
    match branches.is_empty() {
        true => Ok(out),
        false => Err(TemplateError {
            file,
            line: text.lines().count(),
            reason: "`if` without `end`".to_owned(),
        }),
    }
}

/// Cuts a text at its actions, and takes away the white space that they do not want beside them.
fn cut(text: &str) -> Result<Vec<Piece<'_>>, (usize, String)> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(begin) = rest.find("{{") {
        let (before, action) = rest.split_at(begin);
        line += before.matches('\n').count();
        let action = &action[2..];
        let Some(end) = action.find("}}") else {
            return Err((line, "`{{` without `}}`".to_owned()));
        };
        let (code, after) = (&action[..end], &action[end + 2..]);
        let (code, trim_before) = match code.strip_prefix('-') {
            Some(code) => (code, true),
            None => (code, false),
        };
        let (code, trim_after) = match code.strip_suffix('-') {
            Some(code) => (code, true),
            None => (code, false),
        };
        pieces.push(Piece::Text(if trim_before {
            before.trim_end()
        } else {
            before
        }));
        pieces.push(Piece::Action {
            code: code.trim(),
            line,
        });
        rest = after;
        if trim_after {
            rest = after.trim_start();
            line += after[..after.len() - rest.len()].matches('\n').count();
        }
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// A value and what is done to it.
fn evaluate(code: &str, data: &Value) -> Result<String, String> {
    let mut parts = code.split('|').map(str::trim);
    let value = find(parts.next().unwrap_or_default(), data)?;
    let mut text = match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        _ => String::new(),
    };
    let mut first = true;
    for step in parts {
        let mut words = step.split_whitespace();
        match (words.next(), words.next()) {
            (Some("toJson"), None) if first => text = value.to_string(),
            (Some("toYaml"), None) if first => {
                let yaml =
                    maglor_inject::yaml::to_string(value).map_err(|error| error.to_string())?;
                yaml.trim_end().clone_into(&mut text);
            }
            // As YAML reads it: a JSON text.
            (Some("quote"), None) => text = Value::from(text).to_string(),
            (Some("nindent"), Some(spaces)) => {
                let spaces: usize = spaces.parse().map_err(|_| format!("`{step}`: no number"))?;
                let indent = format!("\n{}", " ".repeat(spaces));
                text = format!("{indent}{}", text.replace('\n', &indent));
            }
            _ => return Err(format!("`{step}` is nothing that is understood here")),
        }
        first = false;
    }
    if first && matches!(value, Value::Array(_) | Value::Object(_) | Value::Null) {
        return Err(format!("`{code}` is no text; use toJson or toYaml"));
    }
    Ok(text)
}

fn find<'a>(path: &str, data: &'a Value) -> Result<&'a Value, String> {
    let names = path
        .strip_prefix('.')
        .ok_or_else(|| format!("`{path}` is nothing that is understood here"))?;
    let mut value = data;
    for name in names.split('.') {
        value = value
            .get(name)
            .ok_or_else(|| format!("there is no `{path}`"))?;
    }
    Ok(value)
}

/// As Go's templates see it: empty is false.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(text: &str) -> Result<String, String> {
        let data = json!({
            "Release": {"Namespace": "maglor"},
            "Values": {"n": 2, "text": "a \"b\"", "map": {"x": [1], "y": "z"}, "none": {}, "off": false},
        });
        render("t.yaml", text, &data).map_err(|error| error.to_string())
    }

    #[test]
    fn what_helm_renders_is_rendered() {
        for (text, expected) in [
            ("ns: {{ .Release.Namespace }}\n", "ns: maglor\n"),
            ("{{.Values.n}}", "2"),
            ("{{ .Values.text | quote }}", "\"a \\\"b\\\"\""),
            ("{{ .Values.map | toJson }}", r#"{"x":[1],"y":"z"}"#),
            (
                "{{ .Values.map | toJson | quote }}",
                r#""{\"x\":[1],\"y\":\"z\"}""#,
            ),
            (
                "m: {{ .Values.map | toYaml | nindent 2 }}\n",
                "m: \n  x:\n  - 1\n  'y': z\n",
            ),
            (
                "a\n{{- if .Values.none }}\nb\n{{- else }}\nc\n{{- end }}\nd\n",
                "a\nc\nd\n",
            ),
            (
                "{{- if .Values.n }}{{ if .Values.off }}x{{ else }}y{{ end }}{{ end -}}  \n z",
                "yz",
            ),
            ("{{ if .Values.off }}{{ .Values.missing }}{{ end }}", ""),
        ] {
            assert_eq!(rendered(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_told_with_the_line() {
        for (text, expected) in [
            (
                "a\n{{ .Values.missing }}",
                "t.yaml, line 2: there is no `.Values.missing`",
            ),
            ("{{ range .Values.map }}", "line 1: `range"),
            ("\n{{ .Values.n | upper }}", "line 2: `upper` is nothing"),
            ("{{ .Values.map }}", "is no text"),
            ("{{ if .Values.n }}\n", "`if` without `end`"),
            ("{{ end }}", "`end` without `if`"),
            ("{{ .Values.n", "without `}}`"),
        ] {
            let error = rendered(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
