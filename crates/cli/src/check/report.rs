//! The findings of a check, with hints for fixing them.

use std::fmt::Write as _;

use serde::Serialize;

use crate::live::table::{Column, Format, Row, csv, serialized};

/// The URL of the documentation.
const DOCUMENTS: &str = "https://github.com/maglor-mesh/maglor/blob/main/docs/";
/// Maximum number of names in a line.
const NAMED: usize = 5;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    Good,
    Warning,
    Bad,
}

/// A finding, printed as one line.
#[derive(Debug, Serialize)]
struct Finding {
    about: &'static str,
    outcome: Outcome,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    see: Option<String>,
}

impl Row for Finding {
    const COLUMNS: &'static [Column] = &[
        Column::text("ABOUT"),
        Column::text("OUTCOME"),
        Column::text("WHAT"),
        Column::text("HINT"),
        Column::text("SEE"),
    ];

    fn cells(&self) -> Vec<String> {
        let outcome = match self.outcome {
            Outcome::Good => "good",
            Outcome::Warning => "warning",
            Outcome::Bad => "bad",
        };
        vec![
            self.about.to_owned(),
            outcome.to_owned(),
            self.what.clone(),
            self.hint.clone().unwrap_or_default(),
            self.see.clone().unwrap_or_default(),
        ]
    }
}

/// All findings in order.
#[derive(Debug, Default)]
pub(super) struct Report {
    findings: Vec<Finding>,
}

/// A hint, and where to read more: the name of a file below docs, with a heading.
#[derive(Clone, Debug)]
pub(super) struct Advice(pub(super) String, pub(super) &'static str);

impl Report {
    pub(super) fn good(&mut self, about: &'static str, what: impl Into<String>) {
        self.push(about, Outcome::Good, what.into(), None);
    }

    pub(super) fn warning(&mut self, about: &'static str, what: impl Into<String>, advice: Advice) {
        self.push(about, Outcome::Warning, what.into(), Some(advice));
    }

    pub(super) fn bad(&mut self, about: &'static str, what: impl Into<String>, advice: Advice) {
        self.push(about, Outcome::Bad, what.into(), Some(advice));
    }

    fn push(
        &mut self,
        about: &'static str,
        outcome: Outcome,
        what: String,
        advice: Option<Advice>,
    ) {
        let (hint, see) = match advice {
            Some(Advice(hint, document)) => (Some(hint), Some(format!("{DOCUMENTS}{document}"))),
            None => (None, None),
        };
        self.findings.push(Finding {
            about,
            outcome,
            what,
            hint,
            see,
        });
    }

    pub(super) fn is_good(&self) -> bool {
        let mut all = self.findings.iter();
        all.all(|finding| finding.outcome != Outcome::Bad)
    }

    fn count(&self, outcome: Outcome) -> usize {
        let all = self.findings.iter();
        all.filter(|finding| finding.outcome == outcome).count()
    }

    pub(super) fn text(&self, format: Format) -> String {
        match format {
            Format::Json | Format::Yaml => return serialized(&self.findings, format),
            Format::Csv => return csv(&self.findings),
            Format::Table | Format::Wide => {}
        }
        let mut text = String::new();
        let mut about = "";
        for finding in &self.findings {
            if finding.about != about {
                about = finding.about;
                // Writing to a string does not fail, here and below.
                let _ = writeln!(text, "{about}");
            }
            let sign = match finding.outcome {
                Outcome::Good => '✓',
                Outcome::Warning => '!',
                Outcome::Bad => '✗',
            };
            let _ = writeln!(text, "  {sign} {}", finding.what);
            if let Some(hint) = &finding.hint {
                let _ = writeln!(text, "      {hint}");
            }
            if let Some(see) = &finding.see {
                let _ = writeln!(text, "      {see}");
            }
        }
        let (bad, warnings) = (self.count(Outcome::Bad), self.count(Outcome::Warning));
        let verdict = match (bad, warnings) {
            (0, 0) => "all is well".to_owned(),
            (bad, warnings) => format!("{bad} failed, {warnings} warnings"),
        };
        let _ = writeln!(text, "{verdict}");
        text
    }
}

/// Formats the first names, and the number of others.
pub(super) fn some_of(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>();
    match names.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_to_do() {
        let mut report = Report::default();
        report.good("kubernetes", "API server 1.34.4");
        assert!(report.is_good() && report.text(Format::Table).ends_with("all is well\n"));
        let advice = || Advice("install it".to_owned(), "controller.md#running-it");
        report.warning("kubernetes", "no Gateway API", advice());
        assert!(report.is_good());
        report.bad("controller", "none runs", advice());
        assert!(!report.is_good());
        let text = report.text(Format::Table);
        assert_eq!(
            text,
            "kubernetes\n  ✓ API server 1.34.4\n  ! no Gateway API\n      install it\n      \
             https://github.com/maglor-mesh/maglor/blob/main/docs/controller.md#running-it\n\
             controller\n  ✗ none runs\n      install it\n      \
             https://github.com/maglor-mesh/maglor/blob/main/docs/controller.md#running-it\n\
             1 failed, 1 warnings\n"
        );
        assert!(report.text(Format::Json).contains(r#""outcome": "bad""#));
        let csv = report.text(Format::Csv);
        assert!(csv.starts_with("about,outcome,what,hint,see\n"), "{csv}");
    }

    #[test]
    fn many_names_are_counted() {
        let names: Vec<_> = (0..7).map(|i| i.to_string()).collect();
        assert_eq!(some_of(&names), "0, 1, 2, 3, 4 and 2 more");
        assert_eq!(some_of(&names[..2]), "0, 1");
    }
}
