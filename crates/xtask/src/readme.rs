//! `cargo xtask readme-table`: generates the table of measurements in README.md from results, and marks results that are
//! older than the code that they measure, there and in docs/papers.
//!
//! The section is between two comments and names its source folder. A test checks that it agrees
//! with that folder: numbers are not typed.

mod age;
mod marks;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fmt, fs, io};

use crate::shell;
use age::{Age, Ages, RESULTS};

const BEGIN: &str = "<!-- measured: written by `cargo xtask readme-table` -->";
const END: &str = "<!-- /measured -->";
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
const OLDER: &str =
    "The results are older than the code: `cargo xtask compare` repeats the comparison.\n";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Results to show, a folder in benches/results [default: the newest complete comparison]
    #[arg(value_name = "FOLDER")]
    folder: Option<String>,
    /// Write nothing; fail if a mark disagrees with the history of the repository
    #[arg(long, conflicts_with = "folder")]
    check: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let root = shell::root();
    let ages = Ages::of(&root);
    let done = match options.check {
        true => check(&root, &ages),
        false => write(&root, &ages, options.folder.as_deref()),
    };
    match done {
        Ok(done) => {
            println!("{done}");
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
    /// Files with wrong marks.
    Marks(Vec<PathBuf>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Lacks(path, what) => write!(f, "{} has no {what}", path.display()),
            Self::Marks(paths) => {
                for path in paths {
                    writeln!(f, "{}: marks of older results are wrong", path.display())?;
                }
                f.write_str("`cargo xtask readme-table` corrects them")
            }
        }
    }
}

fn write(root: &Path, ages: &Ages, folder: Option<&str>) -> Result<String, Error> {
    let folder = folder
        .map(ToOwned::to_owned)
        .or_else(|| newest(&root.join(RESULTS)));
    let path = root.join("README.md");
    let readme = read(&path)?;
    let (before, shown, after) =
        split(&readme).ok_or(Error::Lacks(path.clone(), "measured section"))?;
    let text = match &folder {
        Some(folder) => section(root, folder, is_older(ages.age(folder), shown))?,
        None => NOTHING.to_owned(),
    };
    save(&path, &format!("{before}{BEGIN}\n{text}{END}{after}"))?;
    for page in pages(root, ages)? {
        save(&page.path, &page.text)?;
    }
    let from = folder.unwrap_or_else(|| "that nothing has been measured".into());
    Ok(format!("README.md shows {from}"))
}

/// Compares the marks of README.md and docs/papers with the history.
fn check(root: &Path, ages: &Ages) -> Result<String, Error> {
    let path = root.join("README.md");
    let readme = read(&path)?;
    let (_, shown, _) = split(&readme).ok_or(Error::Lacks(path.clone(), "measured section"))?;
    let is_right = source(shown)
        .is_none_or(|folder| is_older(ages.age(folder), shown) == shown.ends_with(OLDER));
    let wrong = pages(root, ages)?.into_iter().filter(|page| !page.is_right);
    let mut wrong: Vec<_> = wrong.map(|page| page.path).collect();
    if !is_right {
        wrong.insert(0, path);
    }
    match wrong.is_empty() {
        true => Ok("the marks of older results agree with the history".into()),
        false => Err(Error::Marks(wrong)),
    }
}

fn pages(root: &Path, ages: &Ages) -> Result<Vec<marks::Page>, Error> {
    marks::pages(root, ages).map_err(|error| Error::File(root.join(marks::PAGES), error))
}

/// Whether the section is to be marked; without history it keeps its mark.
fn is_older(age: Age, shown: &str) -> bool {
    match age {
        Age::Current => false,
        Age::Older => true,
        Age::Unknown => shown.ends_with(OLDER),
    }
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

/// The folder that a section shows.
fn source(shown: &str) -> Option<&str> {
    let (_, link) = shown.rsplit_once(&format!("({RESULTS}/"))?;
    Some(link.split_once(')')?.0)
}

/// Returns the section for the results in a folder, with a note if they are older than the code.
fn section(root: &Path, folder: &str, is_older: bool) -> Result<String, Error> {
    let path = root.join(RESULTS).join(folder).join("summary.md");
    let summary = read(&path)?;
    let (notes, rest) = summary
        .split_once(TABLE)
        .ok_or(Error::Lacks(path, "table"))?;
    let table = decisive(rest.split("\n## ").next().unwrap_or(rest).trim());
    let notes = notes.trim_start_matches("# Summary").trim();
    let notes = notes.replace(ADDED.0, ADDED.1);
    let older = if is_older { OLDER } else { "" };
    Ok(format!(
        "{table}\n\n{notes} Machine, versions, every cell and the raw data: \
         [{RESULTS}/{folder}]({RESULTS}/{folder}).\n{older}"
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

fn save(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|error| Error::File(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_says_what_was_measured() {
        let root = shell::root();
        let readme = read(&root.join("README.md")).unwrap();
        let (_, shown, _) = split(&readme).expect("the README has a measured section");
        let expected = match source(shown) {
            Some(folder) => section(&root, folder, shown.ends_with(OLDER)).unwrap(),
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
        let older = section(&root, "2026-01-02", true).unwrap();
        let section = section(&root, "2026-01-02", false).unwrap();
        assert_eq!(older, format!("{section}{OLDER}"));
        assert_eq!(source(&older), Some("2026-01-02"));
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
