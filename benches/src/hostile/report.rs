//! The report of the suite: `cases.csv` with each outcome, `summary.md` with the counts and lists, and `README.md`
//! with machine, versions and command.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use maglor_testkit::hostile::Class;

use super::Row;
use crate::error::Result;
use crate::peer::Peer;
use crate::report::{Folder, Machine};

pub(super) struct Report<'a> {
    pub(super) peers: &'a [Peer],
    pub(super) rows: &'a [Row],
}

impl Report<'_> {
    /// Writes all files; returns the summary.
    pub(super) fn write(&self, out: Option<&Path>) -> Result<String> {
        let machine = Machine::look(self.peers);
        let folder = Folder::create(out, &machine, "hostile")?;
        let summary = self.summary();
        let facts = machine.facts.iter();
        let facts: String = facts
            .map(|(name, value)| format!("| {name} | {value} |\n"))
            .collect();
        let readme = format!(
            "# The hostile suite, {}\n\n`cargo xtask hostile`; see [docs/hostile.md](../../../docs/hostile.md). \
             Summary: [summary.md](summary.md). Each outcome: [cases.csv](cases.csv).\n\n| | |\n| --- | --- |\n{facts}",
            machine.date
        );
        for (name, text) in [
            ("cases.csv", &self.cases()),
            ("summary.md", &summary),
            ("README.md", &readme),
        ] {
            folder.write(name, text)?;
        }
        Ok(summary)
    }

    fn cases(&self) -> String {
        let mut text = String::from("area,case,expected");
        for peer in self.peers {
            let key = peer.subject.key();
            let _ = write!(text, ",{key},{key}_detail");
        }
        text.push('\n');
        for row in self.rows {
            let _ = write!(
                text,
                "{},{},{}",
                row.area,
                quoted(&row.case),
                quoted(&row.expected)
            );
            for outcome in &row.outcomes {
                let _ = write!(text, ",{},{}", outcome.class.key(), quoted(&outcome.detail));
            }
            text.push('\n');
        }
        text
    }

    fn summary(&self) -> String {
        let mut text = format!("# Hostile suite: {} cases\n\n", self.rows.len());
        self.counts(&mut text);
        let failed: Vec<_> = self
            .rows
            .iter()
            .filter(|row| row.failure.is_some())
            .collect();
        let _ = writeln!(text, "\n## Not as expected: {}\n", failed.len());
        for row in failed {
            let _ = writeln!(
                text,
                "- {}: {}",
                row.area,
                code(row.failure.as_deref().unwrap_or_default())
            );
        }
        self.list(
            &mut text,
            "Accepted by Maglor, refused by all peers",
            Row::is_alone_in_accepting,
        );
        self.list(
            &mut text,
            "Maglor is stricter: refused, and accepted by some peer",
            Row::is_stricter,
        );
        self.list(
            &mut text,
            "Maglor is more lenient: accepted, and refused by some peer",
            Row::is_more_lenient,
        );
        text
    }

    /// Counts the cases of each area by the class of their outcome.
    fn counts(&self, text: &mut String) {
        const CLASSES: [Class; 4] = [Class::Accepted, Class::Refused, Class::Waits, Class::Dead];
        let mut counts: BTreeMap<(&str, usize), [usize; 4]> = BTreeMap::new();
        for row in self.rows {
            for (number, outcome) in row.outcomes.iter().enumerate() {
                let at = CLASSES.iter().position(|&class| class == outcome.class);
                counts.entry((row.area, number)).or_default()[at.unwrap_or(0)] += 1;
            }
        }
        text.push_str("| area | proxy | cases | accepted | refused | waits for more | does not serve any more |\n");
        text.push_str("| --- | --- | ---: | ---: | ---: | ---: | ---: |\n");
        for ((area, number), [accepted, refused, waits, dead]) in counts {
            let peer = &self.peers[number];
            let all = accepted + refused + waits + dead;
            let name = peer.subject;
            let _ = writeln!(
                text,
                "| {area} | {name} | {all} | {accepted} | {refused} | {waits} | {dead} |"
            );
        }
    }

    fn list(&self, text: &mut String, title: &str, is_of_it: fn(&Row) -> bool) {
        let rows: Vec<_> = self.rows.iter().filter(|row| is_of_it(row)).collect();
        let _ = writeln!(text, "\n## {title}: {}\n", rows.len());
        if rows.is_empty() {
            return;
        }
        let names: Vec<_> = self
            .peers
            .iter()
            .map(|peer| peer.subject.to_string())
            .collect();
        let _ = writeln!(text, "| area | case | {} |", names.join(" | "));
        let _ = writeln!(text, "| --- | --- |{}", " --- |".repeat(names.len()));
        for row in rows {
            let classes: Vec<_> = row
                .outcomes
                .iter()
                .map(|outcome| outcome.class.key())
                .collect();
            let _ = writeln!(
                text,
                "| {} | {} | {} |",
                row.area,
                code(&row.case),
                classes.join(" | ")
            );
        }
    }
}

/// Formats code in a cell of a table.
fn code(text: &str) -> String {
    format!("`` {} ``", text.replace('|', "\\|"))
}

fn quoted(text: &str) -> String {
    format!(
        "\"{}\"",
        text.replace('"', "\"\"").replace(['\r', '\n'], " ")
    )
}
