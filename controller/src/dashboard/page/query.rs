//! Parses the query of a request.

use std::fmt;

use maglor_telemetry::admin::parameters;
use percent_encoding::percent_decode_str;

/// Maximum number of parameters.
const MOST: usize = 64;

/// A parsed query.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

/// An invalid query.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct QueryError(pub(crate) String);

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Query {
    /// Parses a query, of which only parameters with the `known` names are allowed.
    pub(crate) fn parse(text: Option<&str>, known: &[&str]) -> Result<Self, QueryError> {
        // As in forms.
        let text = text.unwrap_or_default().replace('+', " ");
        let parts: Vec<(String, String)> = parameters(&text)
            .map(|(name, value)| (decoded(name), value.into_owned()))
            .take(MOST + 1)
            .collect();
        if parts.len() > MOST {
            return Err(QueryError(format!("more than {MOST} parameters")));
        }
        let unknown = parts.iter().find(|(name, _)| !known.contains(&&**name));
        match unknown {
            Some((name, _)) => {
                let known = match known.is_empty() {
                    true => "this page has no parameters".to_owned(),
                    false => format!("expected {}", known.join(", ")),
                };
                Err(QueryError(format!("unknown parameter `{name}`; {known}")))
            }
            None => Ok(Self(parts)),
        }
    }

    /// Returns the first value of a parameter.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let mut of = self.0.iter().filter(|(own, _)| own == name);
        of.next().map(|(_, value)| &**value)
    }

    /// Returns all values of a parameter.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let of = self.0.iter().filter(move |(own, _)| own == name);
        of.map(|(_, value)| &**value)
    }

    /// Returns the value of a parameter from 1 to `most`.
    pub(crate) fn number(
        &self,
        name: &str,
        default: usize,
        most: usize,
    ) -> Result<usize, QueryError> {
        let Some(text) = self.value(name) else {
            return Ok(default);
        };
        match text.parse() {
            Ok(number) if (1..=most).contains(&number) => Ok(number),
            _ => Err(QueryError(format!(
                "{name}: expected a number from 1 to {most}, found `{text}`"
            ))),
        }
    }

    /// Returns the value of a parameter in Unix seconds.
    pub(crate) fn time(&self, name: &str) -> Result<Option<u64>, QueryError> {
        let Some(text) = self.value(name) else {
            return Ok(None);
        };
        match text.parse::<f64>() {
            Ok(seconds) if (0.0..1e11).contains(&seconds) => Ok(Some(seconds as u64)),
            _ => Err(QueryError(format!(
                "{name}: expected a time in Unix seconds, found `{text}`"
            ))),
        }
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_checked() {
        let known = ["name", "at"];
        let query = Query::parse(Some("name=shop%2Fcart&at=12.5&name=b"), &known).unwrap();
        assert_eq!(query.value("name"), Some("shop/cart"));
        assert_eq!(query.values("name").count(), 2);
        assert_eq!(query.time("at"), Ok(Some(12)));
        for (text, expected) in [
            ("nome=x", "unknown parameter `nome`; expected name, at"),
            (&*"name=x&".repeat(65), "more than 64 parameters"),
        ] {
            let error = Query::parse(Some(text), &known).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        for text in ["at=x", "at=-1", "at=NaN", "at=1e300"] {
            let query = Query::parse(Some(text), &known).unwrap();
            assert!(query.time("at").is_err(), "{text}");
        }
    }
}
