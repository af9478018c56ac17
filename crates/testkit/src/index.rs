//! Parses the index of an admin port, so that tests can check its pages.

use std::collections::BTreeSet;

/// The heading of pages for operators.
const OPERATORS: &str = "Over loopback only";

/// Returns the paths that an index lists, in lines such as `PUT /logging?level=L change it`: those
/// for every peer, and those for operators. A path with a parameter at its end (`NAME`) is listed
/// without it.
#[must_use]
pub fn listed_pages(index: &str) -> [BTreeSet<String>; 2] {
    let (public, private) = index.split_once(OPERATORS).expect("two headings");
    [public, private].map(|text| text.lines().filter_map(path).collect())
}

fn path(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    matches!(words.next()?, "GET" | "POST" | "PUT").then_some(())?;
    Some(words.next()?.split('?').next()?.replace("NAME", ""))
}
