//! Markdown tables, aligned so that they also read well on a terminal.

use maglor_lab::des::Estimate;

/// A table with a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self {
            rows: vec![header.into_iter().map(Into::into).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    pub(crate) fn markdown(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .map(|row| width(row, column))
                    .max()
                    .unwrap_or(0)
                    .max(3)
            })
            .collect();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            text.push_str(&line(row, &widths));
            if index == 0 {
                text.push_str(&rule(&widths));
            }
        }
        text
    }
}

fn width(row: &[String], column: usize) -> usize {
    row.get(column).map_or(0, |cell| cell.chars().count())
}

/// Formats a row: the first column is text, aligned to the left; the others are numbers, aligned to
/// the right.
fn line(row: &[String], widths: &[usize]) -> String {
    let mut text = String::from("|");
    for (column, width) in widths.iter().enumerate() {
        let cell = row.get(column).map_or("", String::as_str);
        let padded = if column == 0 {
            format!(" {cell:<width$} |")
        } else {
            format!(" {cell:>width$} |")
        };
        text.push_str(&padded);
    }
    text.push('\n');
    text
}

fn rule(widths: &[usize]) -> String {
    let cell = |(column, width): (usize, &usize)| {
        if column == 0 {
            format!(" {} |", "-".repeat(*width))
        } else {
            format!(" {}: |", "-".repeat(width - 1))
        }
    };
    let cells: String = widths.iter().enumerate().map(cell).collect();
    format!("|{cells}\n")
}

/// Formats a number with about three significant digits; `–` when there is none.
pub(crate) fn number(value: Option<f64>) -> String {
    match value {
        None => "–".into(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// Formats an estimate with its interval, which is left out if there is none.
pub(crate) fn interval(estimate: Estimate, digits: usize) -> String {
    let Estimate { value, half_width } = estimate;
    match half_width.is_finite() {
        true => format!("{value:.digits$} ± {half_width:.digits$}"),
        false => format!("{value:.digits$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align() {
        let mut table = Table::new(["what", "a"]);
        assert!(table.is_empty());
        table.row(vec!["µs".into(), "12.5".into()]);
        assert_eq!(
            table.markdown(),
            "| what |    a |\n| ---- | ---: |\n| µs   | 12.5 |\n"
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(Some(1234.5)), "1234");
        assert_eq!(number(Some(19.54)), "19.5");
        assert_eq!(number(Some(0.253)), "0.25");
        assert_eq!(number(None), "–");
    }
}
