//! Formats conditions of routes as readable text.

use std::fmt;

use super::{HeaderMatch, PathMatch, QueryMatch, RouteMatch, StringMatch};

/// Formats all conditions: `path /api*, method GET, header x-user = ann`.
impl fmt::Display for RouteMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            PathMatch::Exact(path) => write!(f, "path = {path}")?,
            PathMatch::Prefix(path) => write!(f, "path {path}*")?,
            PathMatch::Regex(regex) => write!(f, "path ~ {regex}")?,
        }
        for (at, method) in self.methods.iter().enumerate() {
            let before = if at == 0 { ", method " } else { "|" };
            write!(f, "{before}{method}")?;
        }
        for HeaderMatch {
            name,
            value,
            invert,
        } in &self.headers
        {
            condition(f, *invert, format_args!("header {name}"), value)?;
        }
        for QueryMatch {
            name,
            value,
            invert,
        } in &self.query
        {
            condition(f, *invert, format_args!("query {name}"), value)?;
        }
        match self.grpc {
            true => f.write_str(", gRPC"),
            false => Ok(()),
        }
    }
}

fn condition(
    f: &mut fmt::Formatter<'_>,
    invert: bool,
    of: fmt::Arguments<'_>,
    value: &StringMatch,
) -> fmt::Result {
    let not = if invert { "not " } else { "" };
    write!(f, ", {not}{of}")?;
    match value {
        StringMatch::Contains(text) => write!(f, " *{text}*"),
        StringMatch::Exact(text) => write!(f, " = {text}"),
        StringMatch::Prefix(text) => write!(f, " {text}*"),
        StringMatch::Present => Ok(()),
        StringMatch::Regex(regex) => write!(f, " ~ {regex}"),
        StringMatch::Suffix(text) => write!(f, " *{text}"),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, Method};

    use super::*;

    #[test]
    fn conditions_are_said_one_after_the_other() {
        assert_eq!(RouteMatch::default().to_string(), "path /*");
        let header = |value, invert| HeaderMatch {
            name: HeaderName::from_static("x-user"),
            value,
            invert,
        };
        let all = RouteMatch {
            path: PathMatch::Exact("/api".into()),
            methods: vec![Method::GET, Method::PUT],
            headers: vec![
                header(StringMatch::Exact("ann".into()), false),
                header(StringMatch::Present, true),
            ],
            query: vec![QueryMatch {
                name: "v".into(),
                value: StringMatch::Suffix("2".into()),
                invert: false,
            }],
            grpc: true,
        };
        assert_eq!(
            all.to_string(),
            "path = /api, method GET|PUT, header x-user = ann, not header x-user, query v *2, gRPC"
        );
    }
}
