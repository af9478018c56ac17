//! Validates the access log.

use crate::access_log::foreign;
use crate::report::At;
use crate::{
    AccessLog, AccessLogField, AccessLogFormat, AccessLogKey, AccessLogPart, access_log, raw,
    suggest,
};

/// The maximum length, in bytes, of a translated template in a message.
const LONGEST_HELP: usize = 500;

pub(super) fn settings(raw: &raw::Document, at: &At<'_>) -> Option<AccessLog> {
    let log = raw.access_log.as_ref()?;
    let path = log.path.as_deref().unwrap_or("/dev/stdout");
    if path.is_empty() {
        at.field("access_log")
            .field("path")
            .error("the path is empty");
    }
    Some(AccessLog {
        path: path.into(),
        format: format(log, &at.field("access_log")),
    })
}

fn format(log: &raw::AccessLog, at: &At<'_>) -> AccessLogFormat {
    let text = log.format == Some(raw::AccessLogFormat::Text);
    if let Some(template) = &log.template {
        for (name, set) in [
            ("format", log.format.is_some()),
            ("fields", log.fields.is_some()),
        ] {
            if set {
                at.field(name)
                    .error(format!("`template` and `{name}` are mutually exclusive"))
                    .on_key()
                    .help(format!("remove `{name}`"));
            }
        }
        return AccessLogFormat::Template(template_parts(template, &at.field("template")));
    }
    let Some(chosen) = &log.fields else {
        return match text {
            true => AccessLogFormat::Text,
            false => AccessLogFormat::Json,
        };
    };
    let at = at.field("fields");
    if text {
        at.error("`fields` applies only to `format: json`")
            .on_key()
            .help("use `template: \"{client} {status}\"` for a custom format");
    }
    let keys = match chosen {
        raw::AccessLogFields::Names(raw::OneOrMany(names)) => names_of(names, &at),
        raw::AccessLogFields::Keys(raw::Pairs(pairs)) => keys_of(pairs, &at),
    };
    let count = match chosen {
        raw::AccessLogFields::Names(names) => names.0.len(),
        raw::AccessLogFields::Keys(pairs) => pairs.0.len(),
    };
    if count == 0 {
        at.error("`fields` is empty: log lines would have no fields")
            .help("remove `fields` to log all fields");
    }
    AccessLogFormat::Fields(keys)
}

/// Returns the fields of these names, each with its name as the key.
fn names_of(names: &[String], at: &At<'_>) -> Vec<AccessLogKey> {
    let mut keys: Vec<AccessLogKey> = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let at = at.index(i);
        match name.parse::<AccessLogField>() {
            Ok(field) if keys.iter().any(|one| one.field == field) => {
                at.error(format!("field `{name}` is listed twice"))
                    .help("remove one of them; JSON parsers keep only one of two equal keys");
            }
            Ok(field) => keys.push(AccessLogKey::new(field.name(), field)),
            Err(()) => unknown_field(name, &at),
        }
    }
    keys
}

/// Returns the fields with the user's keys; the YAML reader has rejected duplicates.
fn keys_of(pairs: &[(String, String)], at: &At<'_>) -> Vec<AccessLogKey> {
    let mut keys = Vec::new();
    for (key, name) in pairs {
        let at = at.field(key);
        if key.is_empty() {
            at.error("the key is empty").on_key();
        }
        match (name.parse(), key.parse::<AccessLogField>()) {
            (Ok(field), _) => keys.push(AccessLogKey::new(key, field)),
            (Err(()), Ok(field)) => {
                at.error("key and field are swapped").on_key().help(format!(
                    "write `{}: {}`",
                    crate::yaml::short(name),
                    field.name()
                ));
            }
            (Err(()), Err(())) => unknown_field(name, &at),
        }
    }
    keys
}

fn template_parts(template: &str, at: &At<'_>) -> Vec<AccessLogPart> {
    if template.trim().is_empty() || template.contains(['\n', '\r']) {
        at.error("the template must be one line of text")
            .help("for example `\"{client} {method} {target} {status}\"`");
    }
    if let Some(foreign) = foreign::translate(template) {
        let foreign::Foreign {
            found,
            program,
            ours,
        } = foreign;
        at.error(format!(
            "`{found}` is notation of {program} and would be logged literally"
        ))
        .help(match ours.len() <= LONGEST_HELP {
            true => format!("write `{ours}`"),
            false => {
                "write `{field}` for each field; docs/access-log.md lists the names".to_owned()
            }
        });
        return Vec::new();
    }
    match access_log::template(template) {
        Ok(parts) => parts,
        Err(name) if name.is_empty() => {
            at.error("unmatched brace in the template")
                .help("write `{field}` for a field, `{{` and `}}` for braces");
            Vec::new()
        }
        Err(name) => {
            unknown_field(&name, at);
            Vec::new()
        }
    }
}

fn unknown_field(name: &str, at: &At<'_>) {
    let names = AccessLogField::NAMES;
    let bare = name.trim_matches(['$', '%', '{', '}']);
    let known = foreign::notation(bare).filter(|ours| ours.starts_with('{'));
    let help = match (suggest::nearest(name, names), known) {
        (_, Some(ours)) => format!(
            "use `{}`",
            ours.replace(['{', '}'], "").replace(' ', "`, `")
        ),
        (Some(near), None) => format!("did you mean `{near}`?"),
        (None, None) => format!("the fields are {}", suggest::one_of(&names)),
    };
    at.error(format!(
        "unknown access log field `{}`",
        crate::yaml::short(name)
    ))
    .help(help);
}
