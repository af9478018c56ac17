//! Sidecar settings in annotations `maglor.dev/…`; the annotations of a pod override those of its namespace.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::value::{Error as WordError, StrDeserializer};
use serde_json::Value;

use crate::inject::quantity::is_quantity;
use crate::inject::settings::{Settings, check_log_level};
use crate::inject::skipped::{check_ports, check_subnets};
use crate::inject::{INJECT, Refusal, SKIP_INBOUND_PORTS};

/// The fields of a pod's namespace that injection depends on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Namespace {
    /// The value of the label `maglor.dev/inject`; `None` if the namespace does not have it.
    pub enabled: Option<bool>,
    /// The annotations of the namespace, which are the defaults for its pods.
    pub annotations: BTreeMap<String, String>,
}

impl Namespace {
    /// Reads a `Namespace` as returned by the API server.
    ///
    /// # Errors
    /// If the value of the label is neither `enabled` nor `disabled`.
    pub fn read(namespace: &Value) -> Result<Self, Refusal> {
        let metadata = &namespace["metadata"];
        Ok(Self {
            enabled: enabled(metadata["labels"][INJECT].as_str())?,
            annotations: texts(&metadata["annotations"]),
        })
    }
}

/// Returns the entries of a map whose values are strings; others are ignored.
pub(crate) fn texts(map: &Value) -> BTreeMap<String, String> {
    let pairs = map.as_object().into_iter().flatten();
    let texts = pairs.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

/// Parses `enabled` or `disabled`.
pub(crate) fn enabled(text: Option<&str>) -> Result<Option<bool>, Refusal> {
    match text {
        None => Ok(None),
        Some("enabled" | "true") => Ok(Some(true)),
        Some("disabled" | "false") => Ok(Some(false)),
        Some(other) => Err(Refusal::Annotation {
            name: INJECT,
            reason: format!("`{other}` is neither `enabled` nor `disabled`"),
        }),
    }
}

/// Validates the value of an annotation and sets it in the settings.
pub(crate) type Put = fn(&mut Settings, &str) -> Result<(), String>;

/// The annotations of sidecar settings; `keys` lists these and all others.
pub(crate) const KNOWN: [(&str, Put); 11] = [
    ("maglor.dev/cpu-limit", |to, text| {
        amount(&mut to.cpu_limit, text)
    }),
    ("maglor.dev/cpu-request", |to, text| {
        amount(&mut to.cpu_request, text)
    }),
    ("maglor.dev/image", |to, text| word(&mut to.image, text)),
    ("maglor.dev/log-level", |to, text| {
        check_log_level(text)?;
        text.clone_into(&mut to.log_level);
        Ok(())
    }),
    ("maglor.dev/memory-limit", |to, text| {
        amount(&mut to.memory_limit, text)
    }),
    ("maglor.dev/memory-request", |to, text| {
        amount(&mut to.memory_request, text)
    }),
    ("maglor.dev/redirect", |to, text| {
        choice(&mut to.redirect, text)
    }),
    ("maglor.dev/sidecar", |to, text| choice(&mut to.form, text)),
    (SKIP_INBOUND_PORTS, |to, text| {
        list(&mut to.skip_inbound_ports, text, check_ports)
    }),
    ("maglor.dev/skip-outbound-ports", |to, text| {
        list(&mut to.skip_outbound_ports, text, check_ports)
    }),
    ("maglor.dev/skip-subnets", |to, text| {
        list(&mut to.skip_subnets, text, check_subnets)
    }),
];

/// Returns the settings of one pod.
pub(crate) fn apply(
    settings: &Settings,
    namespace: &BTreeMap<String, String>,
    pod: &BTreeMap<String, String>,
) -> Result<Settings, Refusal> {
    let mut own = settings.clone();
    for (name, put) in KNOWN {
        if let Some(text) = pod.get(name).or_else(|| namespace.get(name)) {
            put(&mut own, text.trim()).map_err(|reason| Refusal::Annotation { name, reason })?;
        }
    }
    match own.above_limit() {
        None => Ok(own),
        Some((request, limit)) => {
            let name = match request == own.cpu_request {
                true => "maglor.dev/cpu-request",
                false => "maglor.dev/memory-request",
            };
            let reason = format!("`{request}` exceeds the limit, `{limit}`; set both");
            Err(Refusal::Annotation { name, reason })
        }
    }
}

/// Reads a list, which may contain spaces anywhere.
fn list(to: &mut String, text: &str, check: fn(&str) -> Result<(), String>) -> Result<(), String> {
    let text: String = text.split_whitespace().collect();
    check(&text)?;
    *to = text;
    Ok(())
}

fn amount(to: &mut String, text: &str) -> Result<(), String> {
    if !is_quantity(text) {
        return Err(format!(
            "invalid quantity `{text}`, expected for example 10m or 16Mi"
        ));
    }
    text.clone_into(to);
    Ok(())
}

fn word(to: &mut String, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("must not be empty".to_owned());
    }
    if text.contains(char::is_whitespace) {
        return Err(format!("`{text}` must not contain spaces"));
    }
    text.clone_into(to);
    Ok(())
}

fn choice<'a, T: Deserialize<'a>>(to: &mut T, text: &'a str) -> Result<(), String> {
    let read = T::deserialize(StrDeserializer::<WordError>::new(text));
    *to = read.map_err(|error| error.to_string())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inject::{Form, Redirect};

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_pod_says_more_than_its_namespace() {
        let namespace = map(&[
            ("maglor.dev/log-level", "debug"),
            ("maglor.dev/sidecar", "container"),
        ]);
        let pod = map(&[
            ("maglor.dev/log-level", "warn"),
            ("maglor.dev/redirect", "none"),
            ("maglor.dev/skip-inbound-ports", "22, 8000-8010"),
            ("other/annotation", "x"),
        ]);
        let own = apply(&Settings::default(), &namespace, &pod).unwrap();
        assert_eq!(own.log_level, "warn");
        assert_eq!((own.form, own.redirect), (Form::Container, Redirect::None));
        assert_eq!(own.skip_inbound_ports, "22,8000-8010");
        assert_eq!(own.cpu_request, "10m");
    }

    /// The API server rejects a request above its limit.
    #[test]
    fn more_than_a_limit_is_not_requested() {
        let with = |pairs: &[(&str, &str)]| apply(&Settings::default(), &map(&[]), &map(pairs));
        for (name, text, expected) in [
            (
                "maglor.dev/cpu-limit",
                "5m",
                "maglor.dev/cpu-request: `10m` exceeds the limit, `5m`",
            ),
            (
                "maglor.dev/memory-limit",
                "8Mi",
                "maglor.dev/memory-request: `16Mi` exceeds the limit, `8Mi`",
            ),
        ] {
            let error = with(&[(name, text)]).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let both = [
            ("maglor.dev/memory-limit", "8Mi"),
            ("maglor.dev/memory-request", "8192Ki"),
        ];
        assert_eq!(with(&both).unwrap().memory_limit, "8Mi");
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        for (name, text, expected) in [
            ("maglor.dev/cpu-limit", "much", "invalid quantity `much`"),
            ("maglor.dev/sidecar", "both", "unknown variant `both`"),
            ("maglor.dev/skip-outbound-ports", "0", "invalid port `0`"),
            (
                "maglor.dev/skip-outbound-ports",
                "9-8",
                "invalid port `9-8`",
            ),
            ("maglor.dev/skip-subnets", "10/8", "invalid network `10/8`"),
            ("maglor.dev/image", " ", "must not be empty"),
            ("maglor.dev/image", "a b", "`a b` must not contain spaces"),
            (
                "maglor.dev/log-level",
                "loud",
                "unknown value `loud`, expected one of off, ",
            ),
            (
                "maglor.dev/log-level",
                "info,=debug",
                "unknown value `=debug`, expected one of",
            ),
        ] {
            let wrong = apply(&Settings::default(), &map(&[]), &map(&[(name, text)]));
            let error = wrong.unwrap_err().to_string();
            assert!(
                error.starts_with(name) && error.contains(expected),
                "{error}"
            );
        }
        assert!(enabled(Some("yes")).is_err());
    }
}
