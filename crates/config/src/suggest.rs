//! "Did you mean …": the nearest word of a list, and other suggestions for messages.

/// The maximum length of compared words: the cost is quadratic in the length.
const MAX_LENGTH: usize = 64;
/// The maximum number of compared candidates, which bounds the cost of a file full of errors.
const MAX_CANDIDATES: usize = 1000;

/// Returns the candidate nearest to `word`, if at most a third of the letters differ.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = normal(word);
    if word.is_empty() || word.len() > MAX_LENGTH {
        return None;
    }
    let limit = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter_map(|candidate| {
            let distance = distance(&word, &normal(candidate))?;
            (distance <= limit).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Guesses the intended `IP:PORT` of a text such as `localhost:80`, `*:80`, `http://0.0.0.0` or `0.0.0.0`.
#[must_use]
pub fn listen_address(text: &str) -> Option<String> {
    let address = crate::hints::shapes::listen(text)?;
    Some(address.trim_matches('"').to_owned())
}

/// Formats a list of alternatives: `` `a`, `b` or `c` ``.
#[must_use]
pub fn one_of(words: &[&str]) -> String {
    match words {
        [] => "nothing".into(),
        [only] => format!("`{only}`"),
        [init @ .., last] => {
            let init: Vec<_> = init.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", init.join(", "))
        }
    }
}

/// Returns the advice for a word, from a table of words and advice.
#[must_use]
pub fn advice(table: &[(&[&str], &'static str)], word: &str) -> Option<&'static str> {
    let found = table.iter().find(|(words, _)| words.contains(&word));
    found.map(|(_, advice)| *advice)
}

/// Normalizes a word, so that the case and the choice between `-` and `_` do not count.
fn normal(word: &str) -> Vec<char> {
    let same = |c: char| {
        if c == '-' {
            '_'
        } else {
            c.to_ascii_lowercase()
        }
    };
    word.chars().take(MAX_LENGTH + 1).map(same).collect()
}

/// Returns the optimal string alignment distance: the number of insertions, deletions, replacements and swaps of
/// neighbours.
fn distance(a: &[char], b: &[char]) -> Option<usize> {
    if b.len() > MAX_LENGTH || a.len().abs_diff(b.len()) > a.len().max(b.len()) / 2 {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (above[j] + usize::from(x != y))
                .min(above[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let words = ["clusters", "cluster", "listeners", "route_tables"];
        assert_eq!(nearest("cluser", words), Some("cluster"));
        assert_eq!(nearest("lsiteners", words), Some("listeners"));
        assert_eq!(nearest("route-tables", words), Some("route_tables"));
        assert_eq!(nearest("Routetables", words), Some("route_tables"));
        assert_eq!(nearest("zebra", words), None);
        assert_eq!(nearest("", words), None);
        assert_eq!(nearest(&"x".repeat(10_000), words), None);
    }

    #[test]
    fn lists_read_well() {
        assert_eq!(one_of(&["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
