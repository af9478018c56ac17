//! Renders the part of Helm's template language that the chart uses, so that `helm install` and `maglor install`
//! render the same files. Unsupported syntax is an error, never copied as text.
//!
//! ```text
//! {{ .Values.a.b }}   {{ .Release.Namespace }}   {{ $.Values.a }}   {{ . }}   | quote   | toJson   | toYaml   | nindent N
//! {{- if .Values.a }} … {{- else }} … {{- end }}       {{- and -}} take the white space beside them
//! {{- range .Values.list }} … {{- end }}               in it `.` is the item, and `$` what `.` is outside
//! ```

use serde_json::Value;

/// Reason why a template cannot be rendered.
#[derive(Debug, thiserror::Error)]
#[error("{file}, line {line}: {reason}")]
pub(super) struct TemplateError {
    file: &'static str,
    line: usize,
    reason: String,
}

/// A piece of a template: text or an action.
enum Piece<'a> {
    Text(&'a str),
    Action { code: &'a str, line: usize },
}

/// A node of the template's block structure.
enum Node<'a> {
    Text(&'a str),
    Value {
        code: &'a str,
        line: usize,
    },
    If {
        path: &'a str,
        line: usize,
        then: Vec<Node<'a>>,
        otherwise: Vec<Node<'a>>,
    },
    Range {
        path: &'a str,
        line: usize,
        body: Vec<Node<'a>>,
    },
}

/// What ends a list of nodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// `else`, on this line.
    Else(usize),
    /// `end`, on this line.
    Block(usize),
    /// The end of the text.
    Text,
}

/// The values of `$` and `.` in a template.
#[derive(Clone, Copy)]
struct Scope<'a> {
    root: &'a Value,
    here: &'a Value,
}

/// An error with its line.
type Fault = (usize, String);

/// Renders one file. `data` has the fields `Values` and `Release`.
pub(super) fn render(
    file: &'static str,
    text: &str,
    data: &Value,
) -> Result<String, TemplateError> {
    let rendered = || {
        let pieces = cut(text)?;
        let mut rest = pieces.as_slice();
        let (nodes, end) = block(&mut rest)?;
        match end {
            End::Text => {}
            End::Else(line) => return Err((line, "`else` without `if`".to_owned())),
            End::Block(line) => return Err((line, "`end` without `if`".to_owned())),
        }
        let scope = Scope {
            root: data,
            here: data,
        };
        let mut out = String::new();
        write(&nodes, scope, &mut out)?;
        Ok(out)
    };
    rendered().map_err(|(line, reason)| TemplateError { file, line, reason })
}

/// Parses the nodes up to the next `else` or `end` of the enclosing block, or to the end of the
/// text.
fn block<'a>(rest: &mut &[Piece<'a>]) -> Result<(Vec<Node<'a>>, End), Fault> {
    let mut nodes = Vec::new();
    while let Some((piece, after)) = rest.split_first() {
        *rest = after;
        let (code, line) = match *piece {
            Piece::Text(text) => {
                nodes.push(Node::Text(text));
                continue;
            }
            Piece::Action { code, line } => (code, line),
        };
        match code.split_once(char::is_whitespace) {
            Some(("if", path)) => nodes.push(condition(path.trim(), line, rest)?),
            Some(("range", path)) => {
                let (body, End::Block(_)) = block(rest)? else {
                    return Err((line, "`range` without `end`".to_owned()));
                };
                let path = path.trim();
                nodes.push(Node::Range { path, line, body });
            }
            None if code == "else" => return Ok((nodes, End::Else(line))),
            None if code == "end" => return Ok((nodes, End::Block(line))),
            _ => nodes.push(Node::Value { code, line }),
        }
    }
    Ok((nodes, End::Text))
}

fn condition<'a>(path: &'a str, line: usize, rest: &mut &[Piece<'a>]) -> Result<Node<'a>, Fault> {
    let (then, mut end) = block(rest)?;
    let mut otherwise = Vec::new();
    if matches!(end, End::Else(_)) {
        (otherwise, end) = block(rest)?;
    }
    match end {
        End::Block(_) => Ok(Node::If {
            path,
            line,
            then,
            otherwise,
        }),
        _ => Err((line, "`if` without `end`".to_owned())),
    }
}

fn write(nodes: &[Node<'_>], scope: Scope<'_>, out: &mut String) -> Result<(), Fault> {
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Value { code, line } => {
                out.push_str(&evaluate(code, scope).map_err(|reason| (*line, reason))?);
            }
            Node::If {
                path,
                line,
                then,
                otherwise,
            } => {
                let value = find(path, scope).map_err(|reason| (*line, reason))?;
                write(if is_true(value) { then } else { otherwise }, scope, out)?;
            }
            Node::Range { path, line, body } => {
                let value = find(path, scope).map_err(|reason| (*line, reason))?;
                let items = value.as_array();
                let items = items.ok_or_else(|| (*line, format!("`{path}` is not a list")))?;
                for here in items {
                    write(body, Scope { here, ..scope }, out)?;
                }
            }
        }
    }
    Ok(())
}

/// Splits a text at its actions, and removes whitespace where these request it.
fn cut(text: &str) -> Result<Vec<Piece<'_>>, Fault> {
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

/// Evaluates a value with its functions.
fn evaluate(code: &str, scope: Scope<'_>) -> Result<String, String> {
    let mut parts = code.split('|').map(str::trim);
    let value = find(parts.next().unwrap_or_default(), scope)?;
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
                let yaml = maglor_manifests::inject::yaml::to_string(value)
                    .map_err(|error| error.to_string())?;
                yaml.trim_end().clone_into(&mut text);
            }
            // Quoted as a JSON string, which YAML can read.
            (Some("quote"), None) => text = Value::from(text).to_string(),
            (Some("nindent"), Some(spaces)) => {
                let spaces: usize = spaces
                    .parse()
                    .map_err(|_| format!("`{step}` needs a number"))?;
                let indent = format!("\n{}", " ".repeat(spaces));
                text = format!("{indent}{}", text.replace('\n', &indent));
            }
            _ => return Err(format!("`{step}` is not supported")),
        }
        first = false;
    }
    if first && matches!(value, Value::Array(_) | Value::Object(_) | Value::Null) {
        return Err(format!("`{code}` is not a string; use toJson or toYaml"));
    }
    Ok(text)
}

fn find<'a>(path: &str, scope: Scope<'a>) -> Result<&'a Value, String> {
    let (mut value, rest) = match path.strip_prefix('$') {
        Some(rest) => (scope.root, rest),
        None => (scope.here, path),
    };
    let names = rest
        .strip_prefix('.')
        .ok_or_else(|| format!("`{path}` is not supported"))?;
    for name in names.split('.').filter(|_| !names.is_empty()) {
        value = value
            .get(name)
            .ok_or_else(|| format!("undefined `{path}`"))?;
    }
    Ok(value)
}

/// Returns the truth value as in Go's templates, where empty values are false.
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
            "Values": {"n": 2, "text": "a \"b\"", "map": {"x": [1], "y": "z"}, "none": {}, "off": false, "list": ["a", "b"]},
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
            (
                "{{- range .Values.list }}\n- {{ . }} in {{ $.Release.Namespace | quote }}\n{{- end }}\n",
                "\n- a in \"maglor\"\n- b in \"maglor\"\n",
            ),
            (
                "{{ range .Values.list }}{{ if $.Values.off }}{{ else }}{{ . }}{{ end }}{{ end }}",
                "ab",
            ),
        ] {
            assert_eq!(rendered(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn unsupported_templates_are_reported_with_their_line() {
        for (text, expected) in [
            (
                "a\n{{ .Values.missing }}",
                "t.yaml, line 2: undefined `.Values.missing`",
            ),
            ("{{ range .Values.list }}", "line 1: `range"),
            (
                "{{ range .Values.n }}{{ end }}",
                "`.Values.n` is not a list",
            ),
            ("{{ with .Values.map }}", "line 1: `with"),
            ("{{ else }}", "`else` without `if`"),
            (
                "\n{{ .Values.n | upper }}",
                "line 2: `upper` is not supported",
            ),
            ("{{ .Values.map }}", "is not a string"),
            ("{{ if .Values.n }}\n", "`if` without `end`"),
            ("{{ end }}", "`end` without `if`"),
            ("{{ .Values.n", "without `}}`"),
        ] {
            let error = rendered(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
