//! The folder of an experiment's results: raw data as it arrives, charts, `summary.md`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use maglor_lab::chart::{Figure, svg};

use super::{Findings, Machine};
use crate::bar::{self, Bar};
use crate::error::{Doing, Result};

/// The folder, while it is written, and the findings so far.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The sections of the findings.
    pub(crate) sections: String,
    pub(crate) bars: Vec<Bar>,
}

impl Folder {
    /// Creates `out`, by default `results/DATE-NAME` in this crate.
    pub(crate) fn create(out: Option<&Path>, machine: &Machine, name: &str) -> Result<Self> {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        let usual = || results.join(format!("{}-{name}", machine.date));
        let path = out.map_or_else(usual, PathBuf::from);
        fs::create_dir_all(&path).doing("make the directory of results")?;
        Ok(Self {
            path,
            sections: String::new(),
            bars: Vec::new(),
        })
    }

    /// Creates a file for raw data with a first line, in place of an older one.
    pub(crate) fn file(&self, name: &str, head: &str) -> Result<fs::File> {
        let mut file = fs::File::create(self.path.join(name)).doing(format!("make {name}"))?;
        writeln!(file, "{head}").doing(format!("write {name}"))?;
        Ok(file)
    }

    /// Writes a whole file, in a folder of its own if the name has one.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path.join(name);
        let folder = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder).doing("make the directory of results")?;
        fs::write(&path, text).doing(format!("write {name}"))
    }

    /// Writes charts; returns the pictures in Markdown.
    pub(crate) fn charts(&self, charts: &[Figure]) -> Result<String> {
        let mut text = String::new();
        for chart in charts {
            let name = format!("charts/{}.svg", chart.id);
            self.write(&name, &svg(chart))?;
            text.push_str(&format!("\n![]({name})\n"));
        }
        Ok(text)
    }

    /// Adds and shows the findings of an experiment.
    pub(crate) fn add(&mut self, findings: Findings) -> Result<()> {
        let charts = self.charts(&findings.charts)?;
        let Findings { title, text, .. } = &findings;
        self.sections
            .push_str(&format!("## {title}\n\n{text}{charts}\n"));
        eprintln!("\n{text}\n{}", bar::table(&findings.bars));
        self.bars.extend(findings.bars);
        Ok(())
    }

    /// Writes `summary.md` and prints its main part; returns whether all bars were reached.
    #[allow(clippy::print_stdout, reason = "this is what a person waits for")]
    pub(crate) fn finish(&self, summary: &str, main: &str) -> Result<bool> {
        self.write("summary.md", summary)?;
        println!("{main}");
        eprintln!("written to {}", self.path.display());
        Ok(self.bars.iter().all(Bar::is_reached))
    }
}
