//! Prints the output of commands: tables, JSON, YAML or CSV.

use maglor_telemetry::command_line::output;
use serde::Serialize;

use super::csv;

/// Output format of rows, the same for all commands.
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
    /// Comma-separated values, with full names and all columns.
    Csv,
}

impl Format {
    /// Returns whether the format is a table, for people.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    /// Whether the column is shown only in the wide table.
    wide: bool,
    /// Whether the column is right-aligned, like numbers.
    right: bool,
    /// JSON pointer (RFC 6901), without the first slash, to the column's value in the serialized row; `None` if CSV
    /// contains the cell.
    field: Option<&'static str>,
}

impl Column {
    /// Creates a column of texts.
    pub(crate) const fn text(title: &'static str) -> Self {
        Self {
            title,
            wide: false,
            right: false,
            field: None,
        }
    }

    /// Creates a column of numbers.
    pub(crate) const fn number(title: &'static str) -> Self {
        Self {
            title,
            wide: false,
            right: true,
            field: None,
        }
    }

    /// Restricts the column to the wide table.
    pub(crate) const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    /// Sets the field of the serialized row that CSV contains for this column. Without this, CSV contains the cell.
    pub(crate) const fn of(self, field: &'static str) -> Self {
        Self {
            field: Some(field),
            ..self
        }
    }

    /// Returns the name of the column in CSV.
    fn name(&self) -> String {
        match self.field {
            Some(field) => field.replace('/', "."),
            None => self.title.to_lowercase().replace(' ', "_"),
        }
    }
}

/// A line of a table.
pub(crate) trait Row: Serialize {
    /// Columns of the table.
    const COLUMNS: &'static [Column];

    /// Returns a cell for each column.
    fn cells(&self) -> Vec<String>;
}

/// Prints rows. The message for an empty result is written to standard error.
pub(crate) fn show<R: Row>(rows: &[R], format: Format, none: &str) {
    match format.is_table() && rows.is_empty() {
        true => eprintln!("{none}"),
        false => output::print(&formatted(rows, format)),
    }
}

/// Formats rows.
pub(crate) fn formatted<R: Row>(rows: &[R], format: Format) -> String {
    match format {
        Format::Json | Format::Yaml => serialized(&rows, format),
        Format::Csv => csv(rows),
        Format::Table | Format::Wide => text(rows, format),
    }
}

/// Formats a value as JSON or YAML. All keys must be strings, so that both can represent it.
pub(crate) fn serialized(value: &impl Serialize, format: Format) -> String {
    match format {
        Format::Yaml => serde_yaml::to_string(value).unwrap_or_default(),
        _ => serde_json::to_string_pretty(value).unwrap_or_default() + "\n",
    }
}

/// Formats a value as a line of JSON.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

/// Formats rows as CSV with a header.
pub(crate) fn csv<R: Row>(rows: &[R]) -> String {
    let records = rows.iter().map(csv_record);
    std::iter::once(csv_header::<R>()).chain(records).collect()
}

/// Formats the header of CSV: the names of the fields.
pub(crate) fn csv_header<R: Row>() -> String {
    csv::record(R::COLUMNS.iter().map(Column::name))
}

/// Formats a row as a CSV record that contains all columns, with the values of the serialized row.
pub(crate) fn csv_record<R: Row>(row: &R) -> String {
    let value = serde_json::to_value(row).unwrap_or_default();
    let columns = R::COLUMNS.iter().zip(row.cells());
    csv::record(columns.map(|(column, cell)| match column.field {
        Some(field) => csv::field(value.pointer(&format!("/{field}"))),
        None => cell,
    }))
}

/// Formats rows below the column titles, with two spaces between columns.
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
            Column::text("NAME").of("name"),
            Column::number("COUNT").of("count"),
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
        assert_eq!(
            csv(&rows),
            "name,count,colour\napple,3,red\ngrapefruit,12,yellow\n"
        );
        assert_eq!(csv::<Fruit>(&[]), "name,count,colour\n");
    }
}
