//! The legend of the picture: the meaning of the colours, lines and symbols that occur.

use std::fmt::Write as _;

use super::super::labels;
use super::style::Class;
use super::{LOCK, Picture, TEXT, escaped};
use crate::health::Health;

/// Distance between entries, and between their lines.
const SPACE: f64 = 18.0;
/// Length of a sample line.
const SAMPLE: f64 = 28.0;
const MARGIN: f64 = 20.0;

/// An entry: its sample and its text.
pub(super) struct Entry {
    sample: Sample,
    text: String,
}

enum Sample {
    Line { class: &'static str, width: f64 },
    Lock,
}

/// Returns the entries of a picture.
pub(super) fn entries(picture: &Picture<'_>, reversed: bool) -> Vec<Entry> {
    let line = |class, width, text: &str| Entry {
        sample: Sample::Line { class, width },
        text: text.to_owned(),
    };
    let mut entries = Vec::new();
    let classes = [
        (
            Class::Calls(Health::Good),
            "99 % or more of the calls succeed",
        ),
        (Class::Calls(Health::Degraded), "95 % or more"),
        (Class::Calls(Health::Failing), "less than 95 %"),
        (Class::Tcp, "TCP connections"),
        (Class::Idle, "no calls"),
    ];
    for (class, text) in classes {
        if picture.edges.iter().any(|drawn| drawn.class == class) {
            entries.push(line(class.name(), 2.0, text));
        }
    }
    if reversed {
        entries.push(line(
            "idle back",
            1.5,
            "from right to left: part of a circle",
        ));
    }
    let calls = || picture.edges.iter().filter(|drawn| drawn.edge.rps > 0.0);
    let by_rate = |one: &&super::Drawn<'_>, other: &&super::Drawn<'_>| {
        one.edge.rps.total_cmp(&other.edge.rps)
    };
    let ends = [calls().min_by(by_rate), calls().max_by(by_rate)];
    if let [Some(least), Some(most)] = ends
        && least.edge.rps < most.edge.rps
    {
        for drawn in [least, most] {
            entries.push(line("idle", drawn.width, &labels::rate(drawn.edge.rps)));
        }
    }
    if picture.edges.iter().any(|drawn| drawn.mtls) {
        entries.push(Entry {
            sample: Sample::Lock,
            text: "mutual TLS".to_owned(),
        });
    }
    entries
}

/// Draws entries below a picture, in as many rows as necessary; returns the total height, too.
pub(super) fn draw(entries: &[Entry], width: f64, top: f64, caption: &str) -> (String, f64) {
    let mut text = String::new();
    let (mut x, mut y) = (MARGIN, top + TEXT);
    let mut advance = |length: f64| {
        if x > MARGIN && x + length > width - MARGIN {
            (x, y) = (MARGIN, y + SPACE);
        }
        let place = (x, y);
        x += length + SPACE;
        place
    };
    for entry in entries {
        let sample = match entry.sample {
            Sample::Line { .. } => SAMPLE,
            Sample::Lock => LOCK,
        };
        let (x, y) = advance(sample + 4.0 + labels::width(&entry.text, TEXT));
        // Writing to a String cannot fail, here and below.
        let _ = match entry.sample {
            Sample::Line { class, width } => write!(
                text,
                "<g class=\"edge {class}\"><path d=\"M{x:.1} {:.1}h{SAMPLE}\" stroke-width=\"{width:.1}\"/></g>",
                y - 3.5
            ),
            Sample::Lock => write!(
                text,
                "<use href=\"#lock\" x=\"{x:.1}\" y=\"{:.1}\"/>",
                y - 8.0
            ),
        };
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            x + sample + 4.0,
            escaped(&entry.text)
        );
    }
    if !caption.is_empty() {
        let (x, y) = advance(labels::width(caption, TEXT));
        let caption = escaped(caption);
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\">{caption}</text>");
    }
    (text, y + MARGIN)
}
