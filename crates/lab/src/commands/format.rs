//! Output formats of results that are rows of numbers.

use serde_json::Value;

/// How to print results.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Format {
    /// One line for each result.
    Csv,
    /// One object, or a list of them for several results.
    Json,
    /// Aligned columns.
    Table,
}

/// Prints one result as an object, several as a list.
pub(crate) fn json(mut results: Vec<Value>) -> String {
    let value = match results.len() {
        1 => results.remove(0),
        _ => Value::Array(results),
    };
    format!("{value:#}\n")
}

/// Prints lines of comma-separated values (RFC 4180, with the line ends of this system).
pub(crate) fn csv(columns: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = columns.join(",") + "\n";
    for row in rows {
        let cells: Vec<_> = row.iter().map(|cell| field(cell)).collect();
        text += &(cells.join(",") + "\n");
    }
    text
}

/// Quotes a field that contains a comma or a quote.
fn field(text: &str) -> String {
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Prints columns that are aligned to the right, since nearly all are numbers.
pub(crate) fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let length = |text: &str| text.chars().count();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        let cells = cells.map(|cell| length(cell));
        cells.chain([length(columns[at])]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        cells.join("  ") + "\n"
    };
    let mut text = line(&mut columns.iter().copied());
    for row in rows {
        text += &line(&mut row.iter().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_quoted_and_columns_aligned() {
        let rows = [vec!["a(b,c)".to_owned(), "1".to_owned()]];
        assert_eq!(csv(&["policy", "m"], &rows), "policy,m\n\"a(b,c)\",1\n");
        assert_eq!(table(&["p", "mean"], &rows), "     p  mean\na(b,c)     1\n");
    }
}
