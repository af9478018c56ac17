//! Parses responses of Prometheus's HTTP API to an instant query (`GET /api/v1/query`, result type
//! `vector`).

use std::collections::BTreeMap;

use thiserror::Error;

use super::fields::{self, Fields};
use super::{FileError, yaml};

/// A value and the labels of its series.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The labels; `__name__` is absent if an operator has removed it.
    pub labels: BTreeMap<String, String>,
    /// The value, which may be infinite or not a number.
    pub value: f64,
}

/// The reason why a response cannot be used.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum AnswerError {
    /// The response does not have the structure of the API.
    #[error("not a Prometheus response: {0}")]
    Shape(#[from] FileError),
    /// The result is not a list of series with one value each.
    #[error("the result is a {0}, not a vector")]
    Kind(String),
    /// Prometheus has rejected the query.
    #[error("Prometheus rejected the query: {0}")]
    Refused(String),
}

/// Parses a response.
///
/// # Errors
/// The response is invalid, or reports an error of the query.
pub fn answer(text: &str) -> Result<Vec<Sample>, AnswerError> {
    let mut root = Fields::new(String::new(), yaml::read(text)?)?;
    if root.name("status")? != "success" {
        let kind = root.name("errorType").unwrap_or_default();
        let error = root.name("error").unwrap_or_default();
        return Err(AnswerError::Refused(format!("{kind}: {error}")));
    }
    let mut data = Fields::new("data".to_owned(), root.required("data")?)?;
    let kind = data.name("resultType")?;
    if kind != "vector" {
        return Err(AnswerError::Kind(kind));
    }
    let mut samples = Vec::new();
    for (path, item) in data.list("result")? {
        samples.push(sample(path, item)?);
    }
    Ok(samples)
}

fn sample(path: String, item: yaml::Node) -> Result<Sample, FileError> {
    let mut fields = Fields::new(path.clone(), item)?;
    let line = fields.line();
    let metric = fields.required("metric")?;
    let mut labels = BTreeMap::new();
    for (at, name, node) in fields::entries(&format!("{path}.metric"), metric)? {
        let yaml::Value::Scalar { text, .. } = node.value else {
            return Err(expected(at, node.line, "a label's value"));
        };
        labels.insert(name, text.into());
    }
    let pair = fields.list("value")?;
    let value = match &pair[..] {
        [_, (at, node)] => match &node.value {
            yaml::Value::Scalar { text, .. } => {
                let number = text.parse();
                number.map_err(|_| expected(at.clone(), node.line, "a number as text"))?
            }
            _ => return Err(expected(at.clone(), node.line, "a number as text")),
        },
        _ => return Err(expected(path + ".value", line, "[time, value]")),
    };
    Ok(Sample { labels, value })
}

fn expected(path: String, line: usize, expected: &'static str) -> FileError {
    FileError::Expected {
        line,
        path,
        expected,
        found: "something else".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_read() {
        let text = r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"a":"x","b":"\u00e9 \"q\""},"value":[1700000000.123,"12.5"]},
            {"metric":{},"value":[1700000000.123,"NaN"]},
            {"metric":{},"value":[1700000000.123,"+Inf"]}]},"warnings":["w"]}"#;
        let samples = answer(text).unwrap();
        assert_eq!(samples[0].labels["b"], "é \"q\"");
        assert_eq!(samples[0].value, 12.5);
        assert!(samples[1].value.is_nan() && samples[2].value.is_infinite());
        let none = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
        assert_eq!(answer(none), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let said = |text: &str| answer(text).unwrap_err().to_string();
        let refused =
            r#"{"status":"error","errorType":"bad_data","error":"parse error at char 3"}"#;
        assert_eq!(
            said(refused),
            "Prometheus rejected the query: bad_data: parse error at char 3"
        );
        let matrix = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
        assert_eq!(said(matrix), "the result is a matrix, not a vector");
        assert!(said("<html>").starts_with("not a Prometheus response: "));
        for value in ["[1]", "[1, \"x\"]", "[1, {}]", "3"] {
            let text = format!(
                r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":{value}}}]}}}}"#
            );
            assert!(said(&text).contains("value"), "{value}: {}", said(&text));
        }
    }
}
