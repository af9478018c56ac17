//! Parses the query of a request, whose parameters have the form `name` or `name=value` and may contain escapes.
//! Clients that rebuild queries, such as kubectl, write `name=` instead of `name` and add their own escapes.

use std::borrow::Cow;

use maglor_telemetry::admin::parameters;
use percent_encoding::percent_decode_str;

/// A parsed query.
pub(crate) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    pub(crate) fn of(text: Option<&'a str>) -> Self {
        let parameters = parameters(text.unwrap_or_default());
        Self(
            parameters
                .map(|(name, value)| (decoded(name), value))
                .collect(),
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let mut of = self.0.iter().filter(|(own, _)| own == name);
        of.next().map(|(_, value)| &**value)
    }
}

fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_empty_values_are_taken() {
        for text in [
            "kind=cluster&name=a.b:80&full",
            "full=&name=a%2eb%3A80&&kind=cluster",
        ] {
            let query = Query::of(Some(text));
            assert_eq!(query.value("name"), Some("a.b:80"), "{text}");
            assert_eq!(query.value("kind"), Some("cluster"));
            assert!(query.has("full") && !query.has("all"));
        }
        assert!(Query::of(None).is_empty());
        assert_eq!(
            Query::of(Some("name=a%23b%zz")).value("name"),
            Some("a#b%zz")
        );
    }
}
