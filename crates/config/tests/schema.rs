//! The checked-in schema and the field tables of docs/configuration.md are those of the code, and
//! the defaults they state are the defaults. `UPDATE=1` rewrites the files.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file with the expected content, or writes it.
fn check(file: &Path, text: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let found = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        found == text,
        "{} is stale: run the tests with UPDATE=1",
        file.display()
    );
}

#[test]
fn the_schema_is_checked_in() {
    let text = serde_json::to_string_pretty(&maglor_config::schema()).unwrap() + "\n";
    check(
        &root().join("deploy/schema/maglor-proxy.schema.json"),
        &text,
    );
}

/// Editors complete what the parser accepts: each policy as a mapping, with its parameters and nothing else.
#[test]
fn the_schema_has_every_policy_with_its_parameters() {
    let schema = maglor_config::schema();
    let forms = schema["$defs"]["Policy"]["anyOf"].as_array().unwrap();
    let form_of = |name: &str| {
        let found = forms.iter().map(|form| &form["properties"]);
        let mut found = found.filter(|properties| properties["name"]["const"] == name);
        (found.next(), found.next())
    };
    for form in maglor_balance::PolicySpec::forms() {
        let (Some(properties), None) = form_of(form.name) else {
            panic!("{}: not there once", form.name);
        };
        let names = form.parameters.iter().map(|parameter| parameter.name);
        let expected: BTreeSet<&str> = names.chain(["name"]).collect();
        let known = properties.as_object().unwrap().keys().map(String::as_str);
        assert_eq!(known.collect::<BTreeSet<_>>(), expected, "{}", form.name);
    }
    // As in the documentation.
    let (ledger, _) = form_of("ledger");
    let words = &ledger.unwrap()["fallback"]["enum"];
    assert_eq!(words, &serde_json::json!(["bounce", "lor", "probe"]));
}

/// All blocks: name → schema.
fn blocks() -> BTreeMap<String, Map<String, Value>> {
    let schema = maglor_config::schema();
    let mut blocks = BTreeMap::new();
    for (name, block) in schema["$defs"].as_object().unwrap() {
        blocks.insert(name.clone(), block.as_object().unwrap().clone());
    }
    blocks.insert("Document".into(), schema.as_object().unwrap().clone());
    blocks
}

fn properties(block: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    block
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

#[test]
fn every_field_is_described() {
    for (name, block) in blocks() {
        assert!(block.contains_key("description"), "{name}");
        for (field, schema) in properties(&block) {
            assert!(schema.get("description").is_some(), "{name}.{field}");
        }
    }
}

/// `<!-- fields: X -->` … `<!-- end -->` holds the fields of block X.
#[test]
fn the_documentation_has_every_field() {
    let file = root().join("docs/configuration.md");
    let old = std::fs::read_to_string(&file).unwrap();
    let blocks = blocks();
    let (mut new, mut seen) = (String::new(), Vec::new());
    let mut parts = old.split("<!-- fields: ");
    new.push_str(parts.next().unwrap());
    for part in parts {
        let (name, rest) = part.split_once(" -->").unwrap();
        let (_, rest) = rest.split_once("<!-- end -->").unwrap();
        let block = blocks
            .get(name)
            .unwrap_or_else(|| panic!("there is no block {name}"));
        write!(
            new,
            "<!-- fields: {name} -->\n{}<!-- end -->{rest}",
            table(block)
        )
        .unwrap();
        seen.push(name.to_owned());
    }
    for (name, block) in &blocks {
        assert!(
            seen.contains(name) || properties(block).next().is_none() || name == "Policy",
            "docs/configuration.md says nothing about {name}"
        );
    }
    check(&file, &new);
}

fn table(block: &Map<String, Value>) -> String {
    let required = block.get("required").and_then(Value::as_array);
    let mut text = "\n| field | type | default | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for (field, schema) in properties(block) {
        let needed = required.is_some_and(|list| list.iter().any(|name| name == field));
        let default = match schema.get("default") {
            Some(Value::String(text)) => format!("`{text}`"),
            Some(value) => format!("`{value}`"),
            None if needed => "required".into(),
            None => "–".into(),
        };
        let meaning = schema["description"].as_str().unwrap().replace('\n', " ");
        let kind = kind(schema);
        writeln!(text, "| `{field}` | {kind} | {default} | {meaning} |").unwrap();
    }
    text + "\n"
}

/// The textual type of a field, with links to blocks.
fn kind(schema: &Value) -> String {
    let list = |key: &str| {
        schema[key]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
    };
    if let Some(target) = schema["$ref"].as_str() {
        let name = target.rsplit('/').next().unwrap();
        return match name {
            "TimeSpan" => "time".into(),
            "Size" => "size".into(),
            "TlsVersion" => "`1.2`, `1.3`".into(),
            "Policy" => "[policy](#load-balancing-policies)".into(),
            _ => match variants(name) {
                Some(words) => words,
                None => format!("[{name}](#{})", name.to_lowercase()),
            },
        };
    }
    if !list("enum").is_empty() {
        return join(
            list("enum")
                .iter()
                .map(|v| format!("`{}`", v.to_string().trim_matches('"'))),
        );
    }
    if !list("anyOf").is_empty() {
        return join(list("anyOf").iter().map(kind)).replace(", ", " or ");
    }
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("object") => format!("mapping to {}", kind(&schema["additionalProperties"])),
        Some("string") => "string".into(),
        Some("boolean") => "`true`, `false`".into(),
        Some(other) => other.into(),
        None => panic!("{schema}"),
    }
}

fn join(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

/// The values of a choice.
fn variants(name: &str) -> Option<String> {
    let block = blocks().remove(name)?;
    let one_of = block.get("oneOf")?.as_array()?.clone();
    Some(join(
        one_of
            .iter()
            .map(|v| format!("`{}`", v["const"].as_str().unwrap())),
    ))
}

/// Writing every default of the schema into a configuration changes nothing.
#[test]
fn stated_defaults_are_the_defaults() {
    let text = r#"
access_log: {}
listeners:
- name: web
  address: 127.0.0.1:80
  http:
    virtual_hosts:
    - domains: ["*"]
      routes:
      - {match: {headers: [{name: a, exact: b}], query: [{name: a, exact: b}]}, cluster: hashing,
         rewrite: {}, hash_policy: [{cookie: {name: c}}]}
      - {clusters: [{name: other}], retry: {back_off: {}}, rate_limit: {requests: 5, key: {header: a}},
         fault: {delay: {fixed_delay: 1s}, abort: {http_status: 500}}}
      - {match: {path: /m}, cluster: other, mirror: [{cluster: hashing}]}
      - {match: {path: /h}, cluster: other, hedge: {delay: 1s}}
      - {match: {path: /r}, redirect: {host: a.b}}
- {name: in, address: 127.0.0.1:82, inbound: {ports: {80: {}}}}
- {name: out, address: 127.0.0.1:83, outbound: {services: [{name: s, cluster: other}]}}
- {name: tcp, address: 127.0.0.1:81, tls: {certificate: a, private_key: b}, tcp: {cluster: other}}
clusters:
- {name: hashing, policy: maglev, endpoints: [{address: 127.0.0.1:1}], slow_start: {}, dns_refresh: {},
   outlier_ejection: {}, limits: {endpoint: {}}, retry_budget: {}, circuit_breaker: {}, concurrency_limit: {},
   health_check: {http: {path: /}}, delay: {}}
- {name: other, tls: {}, endpoints: [127.0.0.1:1]}
"#;
    let plain = maglor_config::parse(text, "plain").unwrap_or_else(|e| panic!("{e}"));
    let mut value: Value = serde_yaml::from_str(text).unwrap();
    let (schema, mut filled) = (maglor_config::schema(), 0);
    fill(&mut value, &schema, &schema, &mut filled);
    assert!(filled > 100, "{filled}");
    // Only forwarded requests have a timeout and a buffer.
    let redirect = &mut value["listeners"][0]["http"]["virtual_hosts"][0]["routes"][4];
    for field in ["timeout", "request_buffer_limit"] {
        redirect.as_object_mut().unwrap().remove(field);
    }
    let text = serde_yaml::to_string(&value).unwrap();
    let full = maglor_config::parse(&text, "full").unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(format!("{:?}", plain.config), format!("{:?}", full.config));
}

fn fill(value: &mut Value, schema: &Value, root: &Value, filled: &mut usize) {
    if let Some(target) = schema["$ref"].as_str() {
        let block = root.pointer(target.trim_start_matches('#')).unwrap();
        return fill(value, block, root, filled);
    }
    for option in schema["anyOf"].as_array().into_iter().flatten() {
        if option.get("$ref").is_some() && value.is_object() {
            fill(value, option, root, filled);
        }
    }
    match value {
        Value::Array(items) => {
            items
                .iter_mut()
                .for_each(|item| fill(item, &schema["items"], root, filled));
        }
        Value::Object(map) => {
            for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
                match (map.get_mut(field), schema.get("default")) {
                    (Some(value), _) => fill(value, schema, root, filled),
                    (None, Some(default)) => {
                        map.insert(field.clone(), default.clone());
                        *filled += 1;
                    }
                    (None, None) => {}
                }
            }
        }
        _ => {}
    }
}

/// Editors must not complain about what the proxy accepts.
#[test]
fn examples_satisfy_the_schema() {
    let schema = maglor_config::schema();
    for entry in std::fs::read_dir(root().join("deploy/examples")).unwrap() {
        let file = entry.unwrap().path();
        // Folders are resources for the controller.
        if file.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let value: Value = serde_yaml::from_str(&text).unwrap();
        if let Err(why) = satisfies(&value, &schema, &schema) {
            panic!("{}: {why}", file.display());
        }
    }
    let wrong = serde_json::json!({"listeners": [{"name": "a", "address": "b", "nonsense": 1}]});
    assert!(satisfies(&wrong, &schema, &schema).is_err());
}

/// As much of JSON Schema as ours uses.
fn satisfies(value: &Value, schema: &Value, root: &Value) -> Result<(), String> {
    if let Some(target) = schema["$ref"].as_str() {
        satisfies(
            value,
            root.pointer(target.trim_start_matches('#')).unwrap(),
            root,
        )?;
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(options) = schema[key].as_array() {
            let results: Vec<_> = options.iter().map(|o| satisfies(value, o, root)).collect();
            if results.iter().all(Result::is_err) {
                return Err(format!("{value}: {results:?}"));
            }
        }
    }
    let wrong = |why: &str| Err(format!("{value}: {why}"));
    if schema.get("const").is_some_and(|only| only != value) {
        return wrong("const");
    }
    if schema["enum"]
        .as_array()
        .is_some_and(|list| !list.contains(value))
    {
        return wrong("enum");
    }
    let is = |kind: &Value| match kind.as_str().unwrap() {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        other => panic!("{other}"),
    };
    match &schema["type"] {
        Value::Null => {}
        Value::Array(kinds) if kinds.iter().any(is) => {}
        kind if kind.is_string() && is(kind) => {}
        kind => return wrong(&kind.to_string()),
    }
    if let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str())
        && !regex::Regex::new(pattern).unwrap().is_match(text)
    {
        return wrong(pattern);
    }
    for item in value.as_array().into_iter().flatten() {
        satisfies(item, &schema["items"], root)?;
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
            return wrong(&format!("{name} is missing"));
        }
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        match (
            schema["properties"].get(name),
            &schema["additionalProperties"],
        ) {
            (Some(schema), _) => satisfies(value, schema, root)?,
            (None, Value::Bool(false)) => return wrong(&format!("{name} not found")),
            (None, other) => satisfies(value, other, root)?,
        }
    }
    Ok(())
}
