//! Prints the output of commands: tables, JSON or YAML.

use serde::Serialize;

use maglor_terminal::output;

/// Output format.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    /// Whether it is shown only in the wide table.
    wide: bool,
    /// Whether it is right-aligned, as numbers are.
    right: bool,
}

impl Column {
    /// Creates a column of texts.
    pub(crate) const fn text(title: &'static str) -> Self {
        Self {
            title,
            wide: false,
            right: false,
        }
    }

    /// Creates a column of numbers.
    pub(crate) const fn number(title: &'static str) -> Self {
        Self {
            title,
            wide: false,
            right: true,
        }
    }

    /// Restricts the column to the wide table.
    pub(crate) const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
}

/// A line of a table.
pub(crate) trait Row: Serialize {
    /// The columns.
    const COLUMNS: &'static [Column];

    /// Returns a cell for each column.
    fn cells(&self) -> Vec<String>;
}

/// Prints rows; the message for an empty result goes to standard error.
pub(crate) fn show<R: Row>(rows: &[R], format: Format, none: &str) {
    match format {
        Format::Json | Format::Yaml => output::print(&serialized(&rows, format)),
        Format::Table | Format::Wide if rows.is_empty() => eprintln!("{none}"),
        Format::Table | Format::Wide => output::print(&text(rows, format)),
    }
}

/// Formats a value as JSON or YAML; all keys are strings, so both can express it.
pub(crate) fn serialized(value: &impl Serialize, format: Format) -> String {
    match format {
        Format::Yaml => serde_yaml::to_string(value).unwrap_or_default(),
        _ => serde_json::to_string_pretty(value).unwrap_or_default() + "\n",
    }
}

/// Formats rows below their titles, with two spaces between columns.
pub(crate) fn text<R: Row>(rows: &[R], format: Format) -> String {
    let shown: Vec<usize> = (0..R::COLUMNS.len())
        .filter(|at| format == Format::Wide || !R::COLUMNS[*at].wide)
        .collect();
    let titles = R::COLUMNS.iter().map(|column| column.title.to_owned());
    let mut lines = vec![titles.collect::<Vec<_>>()];
    lines.extend(rows.iter().map(Row::cells));
    let width = |at: usize| {
        let cells = lines.iter().filter_map(|line| line.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = shown.iter().map(|at| width(*at)).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = shown.iter().zip(&widths).map(|(&at, &width)| {
            let cell = line.get(at).map_or("", String::as_str);
            match R::COLUMNS[at].right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Formats an absent value as `-`.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Fruit {
        name: &'static str,
        count: u32,
        colour: &'static str,
    }

    impl Row for Fruit {
        const COLUMNS: &'static [Column] = &[
            Column::text("NAME"),
            Column::number("COUNT"),
            Column::text("COLOUR").wide(),
        ];

        fn cells(&self) -> Vec<String> {
            vec![self.name.into(), self.count.to_string(), self.colour.into()]
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            Fruit {
                name: "apple",
                count: 3,
                colour: "red",
            },
            Fruit {
                name: "grapefruit",
                count: 12,
                colour: "yellow",
            },
        ];
        assert_eq!(
            text(&rows, Format::Table),
            "NAME        COUNT\napple           3\ngrapefruit     12\n"
        );
        let wide = text(&rows, Format::Wide);
        assert!(wide.starts_with("NAME        COUNT  COLOUR\n"), "{wide}");
        assert!(wide.ends_with("grapefruit     12  yellow\n"), "{wide}");
        assert!(serialized(&rows, Format::Json).contains("\"name\": \"apple\""));
        assert!(serialized(&rows, Format::Yaml).starts_with("- name: apple\n"));
    }
}
