//! Finds the first matching route of a virtual host with many routes, without a pass over all of them.

use hashbrown::HashMap;
use maglor_config::route::PathMatch;

/// From this number of routes on, a host has an index. A pass over fewer routes is faster than lookups.
const WORTH_IT: usize = 16;

/// The routes of a virtual host by their path conditions.
///
/// A request takes one lookup for each segment of its path that is not longer than the longest prefix, and a pass over
/// the routes whose condition is a regular expression, or holds for every path.
#[derive(Debug)]
pub(super) struct PathIndex {
    exact: Routes,
    prefix: Routes,
    /// Length of the longest prefix in bytes.
    longest: usize,
    /// Positions of the other routes, in order.
    rest: Vec<usize>,
}

/// Positions of routes by path, in order.
type Routes = HashMap<Box<[u8]>, Vec<usize>>;

impl PathIndex {
    /// Builds the index of the routes with these conditions; `None` if they are too few.
    pub(super) fn build<'a>(
        conditions: impl ExactSizeIterator<Item = &'a PathMatch>,
    ) -> Option<Self> {
        if conditions.len() < WORTH_IT {
            return None;
        }
        let mut index = Self {
            exact: Routes::new(),
            prefix: Routes::new(),
            longest: 0,
            rest: Vec::new(),
        };
        for (at, condition) in conditions.enumerate() {
            match condition {
                PathMatch::Exact(path) => add(&mut index.exact, path, at),
                PathMatch::Prefix(prefix) if prefix != "/" => {
                    index.longest = index.longest.max(prefix.len());
                    add(&mut index.prefix, prefix, at);
                }
                PathMatch::Prefix(_) | PathMatch::Regex(_) => index.rest.push(at),
            }
        }
        Some(index)
    }

    /// Returns the position of the first route that `matches`, among those whose path condition may hold.
    pub(super) fn first(&self, path: &[u8], matches: impl Fn(usize) -> bool) -> Option<usize> {
        let mut first = usize::MAX;
        let mut consider = |positions: &[usize]| {
            let mut before = positions.iter().copied().take_while(|at| *at < first);
            if let Some(found) = before.find(|at| matches(*at)) {
                first = found;
            }
        };
        if let Some(positions) = self.exact.get(path) {
            consider(positions);
        }
        if !self.prefix.is_empty() {
            for prefix in prefixes(path, self.longest) {
                if let Some(positions) = self.prefix.get(prefix) {
                    consider(positions);
                }
            }
        }
        consider(&self.rest);
        (first != usize::MAX).then_some(first)
    }
}

fn add(routes: &mut Routes, path: &str, at: usize) {
    routes.entry(path.as_bytes().into()).or_default().push(at);
}

/// Returns the prefixes of a path that end with a whole segment, with and without the slash after it, up to a length.
fn prefixes(path: &[u8], longest: usize) -> impl Iterator<Item = &[u8]> {
    let within = path.get(..=longest).unwrap_or(path);
    let slashes = within.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let before = |at: usize| [path.get(..at), path.get(..=at)];
    let cut = slashes.flat_map(move |(at, _)| before(at));
    // Ends with a slash: is among those of the slashes already.
    let whole = (!path.ends_with(b"/")).then_some(path);
    cut.chain([whole]).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::routing::route::path_matches;

    /// Paths of few different segments, so that conditions often hold.
    fn path() -> impl Strategy<Value = String> {
        "(/|/a|/b|/ab|//|/a/){1,5}"
    }

    fn condition() -> impl Strategy<Value = PathMatch> {
        prop_oneof![
            path().prop_map(PathMatch::Exact),
            path().prop_map(PathMatch::Prefix),
            "/(a|b)[ab/]{0,3}".prop_map(|text| PathMatch::Regex(regex::Regex::new(&text).unwrap())),
            Just(PathMatch::Prefix("/".to_owned())),
        ]
    }

    proptest! {
        #[test]
        fn the_first_route_is_that_of_a_pass_over_all(
            conditions in prop::collection::vec(condition(), WORTH_IT..60),
            // Stands for the other conditions of a route.
            other in prop::collection::vec(any::<bool>(), 60),
            path in prop_oneof![path(), Just("*".to_owned()), Just(String::new())],
        ) {
            let index = PathIndex::build(conditions.iter()).unwrap();
            let path = path.as_bytes();
            let matches = |at: usize| other[at] && path_matches(&conditions[at], path);
            let expected = (0..conditions.len()).find(|at| matches(*at));
            prop_assert_eq!(index.first(path, matches), expected);
        }
    }

    #[test]
    fn few_routes_have_no_index() {
        let condition = PathMatch::Exact("/a".to_owned());
        let few = std::iter::repeat_n(&condition, WORTH_IT - 1);
        assert!(PathIndex::build(few).is_none());
    }

    #[test]
    fn lookups_are_bounded_by_the_longest_prefix() {
        let long = "/".repeat(10_000);
        assert_eq!(prefixes(long.as_bytes(), 4).count(), 10);
    }
}
