//! `/why`: the stories of failed and slow requests.

use maglor_telemetry::admin::parameters;
use maglor_telemetry::story::{Filter, Page, Story};
use serde_json::{Value, json};

use crate::telemetry::stories::Stories;

/// Number of stories without `limit`.
const LIMIT: usize = 100;

/// Error in the query of the page.
#[derive(Debug, thiserror::Error, PartialEq)]
pub(super) enum QueryError {
    #[error(
        "unknown filter `{0}`; known filters: id, route, cluster, flag, client, slowest, limit"
    )]
    Unknown(String),
    #[error("{name}: `{value}` is not {expected}")]
    Value {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
}

/// Returns the stories that match a query.
pub(super) fn describe(stories: &Stories, query: &str) -> Result<Value, QueryError> {
    let filter = read(query)?;
    let mut found = stories.all();
    found.retain(|story| takes(&filter, story));
    if filter.slowest {
        found.sort_by(|a, b| b.times.total_ms.total_cmp(&a.times.total_ms));
    }
    found.truncate(filter.limit);
    Ok(json!(Page {
        on: stories.is_on(),
        dropped: stories.dropped(),
        stories: found,
    }))
}

fn read(query: &str) -> Result<Filter, QueryError> {
    let mut filter = Filter {
        limit: LIMIT,
        ..Filter::default()
    };
    for (name, value) in parameters(query) {
        let value = value.into_owned();
        let bad = |name, expected| QueryError::Value {
            name,
            value: value.clone(),
            expected,
        };
        match name {
            "id" => filter.id = Some(value),
            "route" => filter.route = Some(value),
            "cluster" => filter.cluster = Some(value),
            "flag" => filter.flag = Some(value),
            "client" => filter.client = Some(value),
            "slowest" => {
                let slowest = value.parse();
                filter.slowest = slowest.map_err(|_| bad("slowest", "`true` or `false`"))?;
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| *limit > 0);
                filter.limit = limit.ok_or_else(|| bad("limit", "a positive number"))?;
            }
            unknown => return Err(QueryError::Unknown(unknown.to_owned())),
        }
    }
    Ok(filter)
}

fn takes(filter: &Filter, story: &Story) -> bool {
    let is = |wanted: &Option<String>, found: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
    };
    let has = |wanted: &Option<String>, found: Option<&str>| {
        let wanted = wanted.as_deref();
        wanted.is_none_or(|part| found.is_some_and(|found| found.contains(part)))
    };
    let route = story.route.as_ref().map(|route| &*route.name);
    let id = filter.id.is_none()
        || is(&filter.id, Some(&story.id))
        || is(&filter.id, story.trace_id.as_deref());
    id && has(&filter.route, route)
        && is(&filter.cluster, story.cluster_name())
        && is(&filter.flag, Some(&story.flag))
        && (has(&filter.client, Some(&story.client)) || has(&filter.client, story.peer.as_deref()))
        && (!filter.slowest || story.is_slow_only())
}

#[cfg(test)]
mod tests {
    use maglor_telemetry::story::{Attempt, Route, Times};

    use super::*;

    fn story() -> Story {
        Story {
            id: "r-1".into(),
            flag: "UF".into(),
            client: "10.0.0.9:4000".into(),
            peer: Some("spiffe://mesh.example/ns/shop/sa/web".into()),
            route: Some(Route {
                name: "cart/api".into(),
                ..Route::default()
            }),
            attempts: vec![Attempt {
                cluster: "backend".into(),
                ..Attempt::default()
            }],
            times: Times::default(),
            trace_id: Some("4bf9".into()),
            ..Story::default()
        }
    }

    #[test]
    fn every_filter_has_to_hold() {
        let takes = |query: &str| takes(&read(query).unwrap(), &story());
        for query in [
            "",
            "id=r-1",
            "id=4bf9",
            "route=cart",
            "cluster=backend&flag=UF",
            "client=10.0.0.9",
            "client=sa%2Fweb",
            "limit=1",
        ] {
            assert!(takes(query), "{query}");
        }
        for query in [
            "id=r",
            "route=x",
            "cluster=back",
            "flag=UC",
            "client=zzz",
            "slowest=true",
        ] {
            assert!(!takes(query), "{query}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        for (query, part) in [
            ("ids=1", "`ids`"),
            ("limit=0", "limit: `0`"),
            ("slowest=yes", "slowest: `yes`"),
        ] {
            let error = read(query).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
