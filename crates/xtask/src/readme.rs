//! `cargo xtask readme-table`: generates the table of measurements in README.md from results.
//!
//! The section is between two comments and names its source folder. A test checks that it agrees
//! with that folder: numbers are not typed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fmt, fs, io};

use crate::shell;

const BEGIN: &str = "<!-- measured: written by `cargo xtask readme-table` -->";
const END: &str = "<!-- /measured -->";
const RESULTS: &str = "benches/results";
/// The section of a summary that contains the table.
const TABLE: &str = "\n## Side by side\n";
/// A row that only a complete comparison has.
const LAST: &str = "| stripped binary, MB";
/// The rows that matter for choosing a proxy: the beginning of the first cell in the results, and
/// the first cell in README.md. The other rows are only in the results.
const SHOWN: [(&str, &str); 10] = [
    (
        "CPU µs a request:",
        "CPU per request, µs: HTTP/1.1, 64 B, 64 connections",
    ),
    (
        "the same, h2c",
        "CPU per request, µs: h2c, 64 B, 64 connections",
    ),
    (
        "the same, 1000 conn.",
        "CPU per request, µs: HTTP/1.1, 64 B, 1000 connections",
    ),
    (
        "1000 req/s:",
        "CPU per request, µs: HTTP/1.1, 64 B, 64 connections, 1000 req/s",
    ),
    (
        "added p50 / p99",
        "added latency at 1000 req/s, µs: p50 / p99",
    ),
    ("RSS idle, MB (", "RSS idle, MB (largest process)"),
    (
        "kB an idle keep-alive",
        "RSS per idle keep-alive connection, kB",
    ),
    (
        "RSS 10 s after",
        "RSS 10 s after 2000 connections, MB (relative to idle)",
    ),
    ("start to ready", "start to ready, ms"),
    ("stripped binary", "stripped binary, MB"),
];
/// A note of the results, and the same in full for readers of README.md.
const ADDED: (&str, &str) = (
    "Added: over the direct latency.",
    "Added latency: difference to a direct connection.",
);
const NOTHING: &str = "Nothing has been measured yet; `cargo xtask compare` does it.\n";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Results to show, a folder in benches/results [default: the newest complete comparison]
    #[arg(value_name = "FOLDER")]
    folder: Option<String>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match write(options.folder.as_deref()) {
        Ok(from) => {
            println!("README.md shows {from}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug)]
enum Error {
    /// The file cannot be read or written.
    File(PathBuf, io::Error),
    /// The file does not have the expected section.
    Lacks(PathBuf, &'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Lacks(path, what) => write!(f, "{} has no {what}", path.display()),
        }
    }
}

fn write(folder: Option<&str>) -> Result<String, Error> {
    let root = shell::root();
    let folder = folder
        .map(ToOwned::to_owned)
        .or_else(|| newest(&root.join(RESULTS)));
    let text = match &folder {
        Some(folder) => section(&root, folder)?,
        None => NOTHING.to_owned(),
    };
    let path = root.join("README.md");
    let readme = read(&path)?;
    let (before, _, after) =
        split(&readme).ok_or(Error::Lacks(path.clone(), "measured section"))?;
    let new = format!("{before}{BEGIN}\n{text}{END}{after}");
    fs::write(&path, new).map_err(|error| Error::File(path, error))?;
    Ok(folder.unwrap_or_else(|| "that nothing has been measured".into()))
}

/// Splits the text into the parts before, in and after the section.
fn split(readme: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = readme.split_once(BEGIN)?;
    let (section, after) = rest.split_once(END)?;
    Some((before, section.strip_prefix('\n').unwrap_or(section), after))
}

/// Returns the newest comparison of all parts, by its name; quick ones are not for publication, and
/// pairs have another table.
fn newest(results: &Path) -> Option<String> {
    let entries = fs::read_dir(results).into_iter().flatten().flatten();
    let whole = entries.filter(|entry| {
        let summary = fs::read_to_string(entry.path().join("summary.md"));
        summary.is_ok_and(|summary| summary.contains(TABLE) && summary.contains(LAST))
    });
    let names = whole.filter_map(|entry| entry.file_name().into_string().ok());
    let shown = |name: &String| !["quick", "pair"].iter().any(|word| name.contains(word));
    names.filter(shown).max()
}

/// Returns the section for the results in a folder.
fn section(root: &Path, folder: &str) -> Result<String, Error> {
    let path = root.join(RESULTS).join(folder).join("summary.md");
    let summary = read(&path)?;
    let (notes, rest) = summary
        .split_once(TABLE)
        .ok_or(Error::Lacks(path, "table"))?;
    let table = decisive(rest.split("\n## ").next().unwrap_or(rest).trim());
    let notes = notes.trim_start_matches("# Summary").trim();
    let notes = notes.replace(ADDED.0, ADDED.1);
    Ok(format!(
        "{table}\n\n{notes} Machine, versions, every cell and the raw data: \
         [{RESULTS}/{folder}]({RESULTS}/{folder}).\n"
    ))
}

/// Returns the head of a table and those of its rows that are [`SHOWN`], with their labels.
fn decisive(table: &str) -> String {
    let width = SHOWN.iter().map(|(_, label)| label.chars().count()).max();
    let width = width.unwrap_or_default();
    let mut lines = Vec::new();
    for (index, line) in table.lines().enumerate() {
        let line = line.trim_start_matches('|');
        let (cell, values) = line.split_once('|').unwrap_or((line, ""));
        let known = |(start, _): &&(&str, &str)| cell.trim_start().starts_with(start);
        match (index, SHOWN.iter().find(known)) {
            (0, _) => lines.push(format!("| {:width$} |{values}", "")),
            (1, _) => lines.push(format!("| {:-<width$} |{values}", "")),
            (_, Some((_, label))) => lines.push(format!("| {label:width$} |{values}")),
            (_, None) => {}
        }
    }
    lines.join("\n")
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| Error::File(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_says_what_was_measured() {
        let root = shell::root();
        let readme = read(&root.join("README.md")).unwrap();
        let (_, shown, _) = split(&readme).expect("the README has a measured section");
        let link = shown.rsplit_once(&format!("({RESULTS}/"));
        let expected = match link.and_then(|(_, rest)| rest.split_once(')')) {
            Some((folder, _)) => section(&root, folder).unwrap(),
            None => NOTHING.to_owned(),
        };
        assert_eq!(shown, expected, "cargo xtask readme-table writes it anew");
    }

    #[test]
    fn a_section_has_the_rows_that_decide_and_where_they_come_from() {
        let root = std::env::temp_dir().join(format!("maglor-readme-{}", std::process::id()));
        let results = root.join(RESULTS);
        let add = |folder: &str, text: &str| {
            fs::create_dir_all(results.join(folder)).unwrap();
            fs::write(results.join(folder).join("summary.md"), text).unwrap();
        };
        let text = "# Summary\n\nMedians of 5. Added: over the direct latency.\n\n## Side by side\n\n| | A |\n|---|---|\n| RSS idle after some traffic, MB | 1 |\n| the same, h2c | 2 |\n| stripped binary, MB | 3 |\n\n## Bars\n\nx";
        add("2026-01-02", text);
        add("2026-01-03-quick", text);
        add("2026-01-04-conformance", "# Summary\n");
        add(
            "2026-01-05",
            "# Summary\n\n## Side by side\n\n| only load |\n|---|\n\n## Bars\n",
        );
        add("2026-01-06-pair", text);
        assert_eq!(newest(&results).as_deref(), Some("2026-01-02"));
        let section = section(&root, "2026-01-02").unwrap();
        let cells: Vec<Vec<&str>> = section
            .lines()
            .take_while(|line| line.starts_with('|'))
            .skip(2)
            .map(|row| row.split('|').map(str::trim).collect())
            .collect();
        let expected = [
            [
                "",
                "CPU per request, µs: h2c, 64 B, 64 connections",
                "2",
                "",
            ],
            ["", "stripped binary, MB", "3", ""],
        ];
        assert_eq!(cells, expected);
        let note = "\n\nMedians of 5. Added latency: difference to a direct connection. Machine";
        assert!(section.contains(note), "{section}");
        assert!(
            section.ends_with("(benches/results/2026-01-02).\n"),
            "{section}"
        );
        fs::remove_dir_all(&root).unwrap();
    }
}
