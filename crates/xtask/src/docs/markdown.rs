//! The links of a page of Markdown.

use std::ops::Range;

/// A link `[TEXT](TARGET)`, or a picture.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Link<'a> {
    /// From the bracket to the parenthesis.
    pub(crate) range: Range<usize>,
    pub(crate) text: &'a str,
    pub(crate) target: &'a str,
}

/// The links of a page, except examples in code.
pub(crate) fn links(page: &str) -> Vec<Link<'_>> {
    let code = code(page);
    let in_code = |at: usize| code.iter().any(|range| range.contains(&at));
    let middles = page.match_indices("](").map(|(at, _)| at);
    let middles = middles.filter(|at| !in_code(*at));
    middles.filter_map(|at| link(page, at)).collect()
}

/// The link around `](`.
fn link(page: &str, middle: usize) -> Option<Link<'_>> {
    let mut depth = 1;
    let start = page[..middle].rfind(|c| {
        depth += match c {
            ']' => 1,
            '[' => -1,
            _ => 0,
        };
        depth == 0
    })?;
    let target = &page[middle + 2..];
    let target = &target[..target.find(')')?];
    Some(Link {
        range: start..middle + 2 + target.len() + 1,
        text: &page[start + 1..middle],
        target,
    })
}

/// Returns the ranges of code: between fences, and between backticks.
fn code(page: &str) -> Vec<Range<usize>> {
    let mut code = Vec::new();
    let mut at = 0;
    while let Some(found) = page[at..].find('`') {
        let start = at + found;
        let ticks = page[start..].bytes().take_while(|b| *b == b'`').count();
        let after = start + ticks;
        at = match closing(&page[after..], ticks) {
            Some(end) => after + end + ticks,
            None => after,
        };
        code.push(start..at);
    }
    code
}

/// Returns the next run of exactly this many backticks.
fn closing(text: &str, ticks: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = text[at..].find('`') {
        let start = at + found;
        let run = text[start..].bytes().take_while(|b| *b == b'`').count();
        if run == ticks {
            return Some(start);
        }
        at = start + run;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<(&str, &str)> {
        let links = links(page).into_iter();
        links.map(|link| (link.text, link.target)).collect()
    }

    #[test]
    fn links_are_found_outside_of_code() {
        assert_eq!(
            found("a [b](c.md) and [`d`\ne[0]](f.md#g), ![h](i.svg)"),
            [("b", "c.md"), ("`d`\ne[0]", "f.md#g"), ("h", "i.svg")]
        );
        assert!(found("`[a](b)` ``[a`](b)``\n```sh\n[a](b)\n```\n").is_empty());
    }

    #[test]
    fn a_range_is_the_whole_link() {
        let page = "see [a](b.md).";
        assert_eq!(&page[links(page)[0].range.clone()], "[a](b.md)");
    }
}
