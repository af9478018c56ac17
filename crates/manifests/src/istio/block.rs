//! A mapping of an object with its path, which tracks unread fields.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use maglor_config::raw::TimeSpan;
use maglor_config::suggest::nearest;
use serde_json::{Map, Value};

use crate::istio::finding::{Effect, Report};

/// A mapping; see the module's documentation.
pub(crate) struct Block<'a> {
    fields: Option<&'a Map<String, Value>>,
    asked: RefCell<Vec<&'static str>>,
    pub(crate) path: String,
    pub(crate) report: &'a Report,
}

impl<'a> Block<'a> {
    /// Wraps the mapping at a path. A value of another type is reported, and treated as empty.
    pub(crate) fn new(value: &'a Value, path: String, report: &'a Report) -> Self {
        if !value.is_object() && !value.is_null() {
            report.add(Effect::Refused, path.clone(), "expected a mapping");
        }
        Self {
            fields: value.as_object(),
            asked: RefCell::default(),
            path,
            report,
        }
    }

    pub(crate) fn at(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    pub(crate) fn value(&self, name: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().push(name);
        let value = self.fields?.get(name)?;
        (!value.is_null()).then_some(value)
    }

    /// Returns a value of a type; reports a finding that names the type if the value has another one.
    fn typed<T>(
        &self,
        name: &'static str,
        wanted: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(name)?;
        let found = read(value);
        if found.is_none() {
            let what = format!("expected {wanted}");
            self.report.add(Effect::Refused, self.at(name), what);
        }
        found
    }

    pub(crate) fn text(&self, name: &'static str) -> Option<&'a str> {
        self.typed(name, "a string", Value::as_str)
    }

    pub(crate) fn number(&self, name: &'static str) -> Option<u32> {
        let read = |value: &Value| u32::try_from(value.as_u64()?).ok();
        self.typed(name, "a whole number", read)
    }

    pub(crate) fn port(&self, name: &'static str) -> Option<u16> {
        let read = |value: &Value| u16::try_from(value.as_u64()?).ok();
        self.typed(name, "a port", read)
    }

    pub(crate) fn float(&self, name: &'static str) -> Option<f64> {
        self.typed(name, "a number", Value::as_f64)
    }

    pub(crate) fn flag(&self, name: &'static str) -> Option<bool> {
        self.typed(name, "true or false", Value::as_bool)
    }

    pub(crate) fn time(&self, name: &'static str) -> Option<TimeSpan> {
        let read = |value: &Value| duration(value.as_str()?).map(TimeSpan);
        self.typed(name, "a time such as `10s` or `500ms`", read)
    }

    pub(crate) fn block(&self, name: &'static str) -> Option<Block<'a>> {
        let value = self.value(name)?;
        Some(Block::new(value, self.at(name), self.report))
    }

    pub(crate) fn blocks(&self, name: &'static str) -> Vec<Block<'a>> {
        let list = self.typed(name, "a list", Value::as_array);
        let items = list.into_iter().flatten().enumerate();
        let block =
            |(i, value)| Block::new(value, format!("{}.{name}[{i}]", self.path), self.report);
        items.map(block).collect()
    }

    pub(crate) fn texts(&self, name: &'static str) -> Vec<String> {
        let read = |value: &Value| {
            let items = value.as_array()?.iter();
            items.map(|item| item.as_str().map(str::to_owned)).collect()
        };
        self.typed(name, "a list of strings", read)
            .unwrap_or_default()
    }

    /// Returns a mapping of names to strings.
    pub(crate) fn pairs(&self, name: &'static str) -> BTreeMap<String, String> {
        let read = |value: &Value| {
            let fields = value.as_object()?.iter();
            let pair =
                |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
            fields.map(pair).collect()
        };
        self.typed(name, "a mapping of names to strings", read)
            .unwrap_or_default()
    }

    /// Returns a mapping of names to mappings.
    pub(crate) fn named_blocks(&self, name: &'static str) -> Vec<(&'a str, Block<'a>)> {
        let fields = self.typed(name, "a mapping of names to mappings", Value::as_object);
        let fields = fields.into_iter().flatten();
        let block = |(key, value): (&'a String, &'a Value)| {
            let path = format!("{}.{name}.{key}", self.path);
            (key.as_str(), Block::new(value, path, self.report))
        };
        fields.map(block).collect()
    }

    /// Reports an unsupported field if it is present.
    pub(crate) fn without(&self, name: &'static str, effect: Effect, why: &str) {
        if self.value(name).is_some() {
            self.report.add(effect, self.at(name), why);
        }
    }

    pub(crate) fn refuse(&self, name: &str, why: impl Into<String>) {
        self.report.add(Effect::Refused, self.at(name), why);
    }

    pub(crate) fn ignore(&self, name: &str, why: impl Into<String>) {
        self.report.add(Effect::Ignored, self.at(name), why);
    }

    /// Reports unread fields. Call it after reading all known fields.
    pub(crate) fn end(&self, effect: Effect) {
        let asked = self.asked.borrow();
        let Some(fields_of) = self.fields else { return };
        for (name, value) in fields_of {
            if !value.is_null() && !asked.contains(&name.as_str()) {
                let absent = |field: &&str| fields_of.get(*field).is_none_or(Value::is_null);
                let near = nearest(name, asked.iter().copied().filter(absent));
                let what = match near {
                    Some(near) => format!("not supported; did you mean `{near}`?"),
                    None => "not supported".to_owned(),
                };
                self.report.add(effect, self.at(name), what);
            }
        }
    }
}

/// Parses a duration in Go's notation: `1h30m`, `1.5s`, `500ms`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() || text.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let after = &rest[digits..];
        let letters = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let seconds = match &after[..letters] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        sum = sum.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &after[letters..];
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_go() {
        for (text, expected) in [
            ("10s", Some(10_000)),
            ("1.5s", Some(1500)),
            ("1h30m", Some(5_400_000)),
            ("500ms", Some(500)),
            ("0s", Some(0)),
            ("", None),
            ("10", None),
            ("s", None),
            ("1x", None),
            ("-1s", None),
            ("99999999999999999999h", None),
        ] {
            let found = duration(text).map(|time| time.as_millis());
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn unknown_fields_are_named() {
        let value = serde_json::json!({"a": "x", "b": 1, "c": null, "d": {"e": [1]}});
        let report = Report::default();
        let block = Block::new(&value, "spec".into(), &report);
        assert_eq!(block.text("a"), Some("x"));
        assert_eq!(block.text("b"), None);
        block.end(Effect::Ignored);
        let found = report.read(Some(()));
        let texts: Vec<String> = found.findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["spec.b: expected a string", "spec.d: not supported"]
        );
        assert_eq!(found.value, None);
    }
}
