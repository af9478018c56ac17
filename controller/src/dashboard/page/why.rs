//! Why a request failed or was slow, as `maglor why` explains it: from the stories that proxies keep, requested from the
//! admin ports that can be reached.

use std::collections::BTreeMap;
use std::sync::Arc;

use maglor_telemetry::story::{Collected, Filter, Page, Story};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::dashboard::page::admin_port::{self, AdminPort, Proxies};
use crate::dashboard::page::hub::seconds;
use crate::dashboard::page::model::Source;
use crate::dashboard::page::query::{Query, QueryError};

/// Parameters of a request for stories.
pub(crate) const PARAMETERS: [&str; 8] = [
    "client", "flag", "id", "limit", "proxy", "route", "service", "slowest",
];
/// Default and maximum of the number of stories in a list.
const LIMITS: (usize, usize) = (50, 100);
/// Maximum number of proxies of a request.
const MOST_PROXIES: usize = 256;
/// How many proxies are asked at a time.
const AT_ONCE: usize = 8;
/// Maximum size of a proxy's response, which keeps 0.9 MB of stories at most.
const LONGEST: usize = 2 << 20;

/// A request for stories.
#[derive(Debug)]
pub(crate) struct Why {
    filter: Filter,
    /// The vertex whose calls are listed, as caller or as called one.
    service: Option<String>,
    /// The proxy that is asked; `None` for all. Identifiers such as `#17` are unique in a proxy only.
    proxy: Option<String>,
}

impl Why {
    /// Reads a query: of one request if it has an `id`, else of a list.
    pub(crate) fn new(query: &Query) -> Result<Self, QueryError> {
        let text = |name| {
            let value = query.value(name).map(str::trim);
            value.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let limit = query.number("limit", LIMITS.0, LIMITS.1)?;
        let slowest = match query.value("slowest") {
            None | Some("false") => false,
            Some("true") => true,
            Some(text) => {
                return Err(QueryError(format!(
                    "slowest: expected true or false, found `{text}`"
                )));
            }
        };
        Ok(Self {
            filter: Filter {
                id: text("id"),
                route: text("route"),
                cluster: None,
                flag: text("flag"),
                client: text("client"),
                slowest,
                limit,
            },
            service: text("service"),
            proxy: text("proxy"),
        })
    }

    /// Returns the document; `None` if nothing is kept of the request.
    pub(crate) async fn answer(self, source: &dyn Source, proxies: Proxies) -> Option<Value> {
        let asked_for = Filter {
            // Only a part of the stories of a proxy are of the service.
            limit: match self.service {
                Some(_) => LIMITS.1,
                None => self.filter.limit,
            },
            ..self.filter.clone()
        };
        let is_asked = |name: &String| self.proxy.as_ref().is_none_or(|proxy| proxy == name);
        let proxies = proxies.into_iter().filter(|(name, _)| is_asked(name));
        let service = self.service.as_deref();
        let asked = ask(&asked_for.path(), proxies, (service, source)).await;
        let mut document = match self.filter.id {
            Some(_) => json!(asked.found.explained()?),
            None => json!({"stories": asked.found.list(&self.filter)}),
        };
        document["at"] = json!((seconds() * 10.0).round() / 10.0);
        document["proxies"] = asked.proxies.into();
        document["without_stories"] = asked.without_stories.into();
        document["unreachable"] = json!(asked.unreachable);
        document["dropped"] = asked.dropped.into();
        Some(document)
    }
}

/// Keeps the stories of requests that a service got or sent, of those of a proxy.
fn keep(stories: &mut Vec<Story>, proxy: &str, service: &str, source: &dyn Source) {
    if source.vertex_of_proxy(proxy).as_deref() == Some(service) {
        return;
    }
    stories.retain(|story| {
        let called = story.cluster_name();
        let called = called.and_then(|cluster| source.vertex_of_cluster(cluster));
        called.as_deref() == Some(service)
    });
}

/// The responses of proxies.
#[derive(Default)]
struct Asked {
    found: Collected,
    proxies: usize,
    without_stories: Vec<String>,
    unreachable: BTreeMap<String, String>,
    dropped: u64,
}

async fn ask(
    path: &str,
    proxies: impl Iterator<Item = (String, AdminPort)>,
    (service, source): (Option<&str>, &dyn Source),
) -> Asked {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut pages = JoinSet::new();
    for (name, port) in proxies.take(MOST_PROXIES) {
        let (path, permits) = (path.to_owned(), Arc::clone(&permits));
        pages.spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            let page = page(&name, &port, &path).await;
            (name, page)
        });
    }
    let mut asked = Asked::default();
    while let Some(joined) = pages.join_next().await {
        // A panic is in the log.
        let Ok((name, page)) = joined else { continue };
        asked.proxies += 1;
        match page {
            Ok(mut page) => {
                if let Some(service) = service {
                    keep(&mut page.stories, &name, service, source);
                }
                asked.dropped += page.dropped;
                asked.found.add(&name, page.stories);
                if !page.on {
                    asked.without_stories.push(name);
                }
            }
            Err(reason) => drop(asked.unreachable.insert(name, reason)),
        }
    }
    asked.without_stories.sort();
    asked
}

async fn page(proxy: &str, port: &AdminPort, path: &str) -> Result<Page, String> {
    let body = admin_port::get(proxy, port, path).await?;
    let body = admin_port::whole(body, LONGEST).await?;
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(query: &str) -> Result<Why, QueryError> {
        Why::new(&Query::parse(Some(query), &PARAMETERS)?)
    }

    #[test]
    fn filters_are_those_of_the_command() {
        let one = why("id=%207d1b%20&limit=9").unwrap();
        assert_eq!(one.filter.path(), "/why?limit=100&id=7d1b");
        let list = why("flag=UF&slowest=true&service=shop/cart&client=").unwrap();
        assert_eq!(list.filter.path(), "/why?limit=50&flag=UF&slowest=true");
        assert_eq!(list.service.as_deref(), Some("shop/cart"));
        for query in ["limit=0", "limit=101", "slowest=yes", "cluster=a"] {
            assert!(why(query).is_err(), "{query}");
        }
    }
}
