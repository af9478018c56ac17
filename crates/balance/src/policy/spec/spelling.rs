//! Suggestions for misspelt words, and quotations of a text in errors.

/// The longest part of a text that an error quotes, in characters.
const QUOTED: usize = 60;

/// Returns the known word with the fewest edits, if these are few for the length of `word`.
pub(super) fn nearest(word: &str, known: &[&'static str]) -> Option<&'static str> {
    // Longer texts have no near word, and must not cost quadratic time.
    if word.len() > 32 {
        return None;
    }
    let (edits, best) = known
        .iter()
        .map(|k| (edits(word, k), *k))
        .min_by_key(|(edits, _)| *edits)?;
    let allowed = if best.len() <= 4 { 1 } else { best.len() / 3 };
    (edits <= allowed).then_some(best)
}

/// Returns the Levenshtein distance between two words: the number of insertions, deletions and substitutions of
/// characters.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Returns at most 60 characters of a text, for quotation in an error.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
