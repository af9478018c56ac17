//! The stories of several proxies: what is requested from their admin ports, and what it amounts to. The reader does the
//! I/O.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::spent::{Spent, spent};
use super::{Story, explain, explain_all};

/// Maximum number of stories of one request in a proxy.
const OF_ONE: usize = 100;

/// Which stories are requested.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Identifier of the request, of its trace, or of a story.
    pub id: Option<String>,
    /// Part of the name of the route.
    pub route: Option<String>,
    /// Name of the cluster.
    pub cluster: Option<String>,
    /// Response flag.
    pub flag: Option<String>,
    /// Part of the client's address or SPIFFE ID.
    pub client: Option<String>,
    /// Only requests that did not fail, slowest first; otherwise all, newest first.
    pub slowest: bool,
    /// Maximum number of stories, if no `id` is requested.
    pub limit: usize,
}

impl Filter {
    /// Returns path and query of the page of a proxy's admin port.
    #[must_use]
    pub fn path(&self) -> String {
        let limit = match self.id {
            Some(_) => OF_ONE,
            None => self.limit,
        };
        let mut path = format!("/why?limit={limit}");
        let filters = [
            ("id", &self.id),
            ("route", &self.route),
            ("cluster", &self.cluster),
            ("flag", &self.flag),
            ("client", &self.client),
        ];
        for (name, value) in filters {
            if let Some(value) = value {
                let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
                path.push_str(&format!("&{name}={value}"));
            }
        }
        if self.slowest {
            path.push_str("&slowest=true");
        }
        path
    }
}

/// The page of a proxy.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Page {
    /// Whether the proxy keeps stories.
    pub on: bool,
    /// How many stories had no room.
    #[serde(default)]
    pub dropped: u64,
    /// The stories that match.
    pub stories: Vec<Story>,
}

/// An explained request: its story in each proxy, the outermost first.
#[derive(Debug, Serialize)]
pub struct Explained {
    /// Name of the cause.
    pub cause: &'static str,
    /// The cause in a sentence.
    pub sentence: String,
    /// What each proxy has kept.
    pub stories: Vec<StoryDetails>,
}

/// A story, and where its time went.
#[derive(Debug, Serialize)]
pub struct StoryDetails {
    /// The story.
    #[serde(flatten)]
    pub story: Story,
    /// The parts of its time.
    pub spent: Vec<Spent>,
}

/// A story in a list, with its cause.
#[derive(Debug, Serialize)]
pub struct Listed {
    /// Name of the cause.
    pub cause: &'static str,
    /// The cause in a sentence.
    pub sentence: String,
    /// The story.
    #[serde(flatten)]
    pub story: Story,
}

/// The stories of several proxies.
#[derive(Debug, Default)]
pub struct Collected(Vec<Story>);

impl Collected {
    /// Adds the stories of a proxy.
    pub fn add(&mut self, proxy: &str, stories: Vec<Story>) {
        let stories = stories.into_iter().map(|story| Story {
            proxy: Some(proxy.to_owned()),
            ..story
        });
        self.0.extend(stories);
    }

    /// Explains the request whose stories these are; `None` if there are none.
    #[must_use]
    pub fn explained(mut self) -> Option<Explained> {
        let cause = explain_all(&mut self.0)?;
        let stories = self.0.into_iter().map(|story| StoryDetails {
            spent: spent(&story),
            story,
        });
        Some(Explained {
            cause: cause.kind.name(),
            sentence: cause.sentence,
            stories: stories.collect(),
        })
    }

    /// Returns the stories in the order of the filter, each with its cause.
    #[must_use]
    pub fn list(mut self, filter: &Filter) -> Vec<Listed> {
        match filter.slowest {
            true => {
                let total = |story: &Story| story.times.total_ms;
                self.0.sort_by(|a, b| total(b).total_cmp(&total(a)));
            }
            false => self.0.sort_by(|a, b| b.time.cmp(&a.time)),
        }
        self.0.truncate(filter.limit);
        listed(self.0.into_iter())
    }
}

impl Explained {
    /// Returns each story with its own cause.
    #[must_use]
    pub fn listed(self) -> Vec<Listed> {
        listed(self.stories.into_iter().map(|one| one.story))
    }
}

fn listed(stories: impl Iterator<Item = Story>) -> Vec<Listed> {
    let listed = stories.map(|story| {
        let cause = explain(&story);
        Listed {
            cause: cause.kind.name(),
            sentence: cause.sentence,
            story,
        }
    });
    listed.collect()
}

#[cfg(test)]
mod tests {
    use super::super::Times;
    use super::*;

    #[test]
    fn values_of_filters_are_escaped() {
        let filter = Filter {
            client: Some("ns/shop&limit=9".to_owned()),
            slowest: true,
            limit: 20,
            ..Filter::default()
        };
        assert_eq!(
            filter.path(),
            "/why?limit=20&client=ns%2Fshop%26limit%3D9&slowest=true"
        );
        let one = Filter {
            id: Some("#7".to_owned()),
            ..Filter::default()
        };
        assert_eq!(one.path(), "/why?limit=100&id=%237");
    }

    #[test]
    fn lists_are_merged() {
        let story = |time: &str, total_ms| Story {
            time: time.to_owned(),
            times: Times {
                total_ms,
                ..Times::default()
            },
            ..Story::default()
        };
        let merged = |slowest| {
            let mut all = Collected::default();
            all.add("a", vec![story("3", 1.0), story("1", 9.0)]);
            all.add("b", vec![story("2", 5.0)]);
            let filter = Filter {
                slowest,
                limit: 2,
                ..Filter::default()
            };
            let listed = all.list(&filter).into_iter();
            let names = listed.map(|one| (one.story.proxy.unwrap(), one.story.time));
            names.collect::<Vec<_>>()
        };
        let pairs = |pairs: [(&str, &str); 2]| pairs.map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(merged(false), pairs([("a", "3"), ("b", "2")]));
        assert_eq!(merged(true), pairs([("a", "1"), ("b", "2")]));
        assert!(Collected::default().explained().is_none());
    }
}
