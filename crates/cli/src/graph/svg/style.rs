//! The colours of the picture, which show the success of calls, for light and dark pages.

use maglor_controller::graph::Edge;

use super::super::labels;
use super::escaped;
use crate::health::Health;

/// The class of a line or a box, in the style sheet of the picture.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    /// Calls, by their success.
    Calls(Health),
    /// TCP connections, whose success is unknown.
    Tcp,
    /// Neither calls nor connections.
    Idle,
}

impl Class {
    pub(super) fn of_edge(edge: &Edge) -> Self {
        match labels::is_tcp(edge) {
            true => Self::Tcp,
            false => Self::of_calls(edge.rps, edge.failures),
        }
    }

    pub(super) fn of_calls(rps: f64, failures: f64) -> Self {
        let success = labels::success(rps, failures);
        success.map_or(Self::Idle, |share| Self::Calls(Health::of(share)))
    }

    pub(super) fn is_bad(self) -> bool {
        matches!(self, Self::Calls(Health::Degraded | Health::Failing))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Calls(Health::Good) => "good",
            Self::Calls(Health::Degraded) => "degraded",
            Self::Calls(Health::Failing) => "failing",
            Self::Tcp => "tcp",
            Self::Idle => "idle",
        }
    }
}

/// Each class with its colours on a light and a dark page.
const COLOURS: [(&str, &str, &str); 5] = [
    ("good", "#4f9a70", "#4f9a70"),
    ("degraded", "#b36b00", "#e3a23a"),
    ("failing", "#c62f2f", "#ff7b72"),
    ("tcp", "#4a6fa5", "#79a7e8"),
    ("idle", "#7a7f87", "#8b949e"),
];

/// Returns the beginning of the file: size, title, style sheet and symbols.
pub(super) fn head(width: f64, height: f64, title: &str, description: &str) -> String {
    let (title, description) = (escaped(title), escaped(description));
    let markers = COLOURS.map(|(class, ..)| {
        format!(
            "<marker id=\"{class}\" class=\"arrow {class}\" viewBox=\"0 0 8 8\" refX=\"0\" refY=\"4\" markerWidth=\"8\" \
             markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker>\n"
        )
    });
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-labelledby=\"title description\">\n\
         <title id=\"title\">{title}</title>\n<desc id=\"description\">{description}</desc>\n\
         <style>\n{}</style>\n<defs>\n{}\
         <g id=\"lock\"><path class=\"bow\" d=\"M2 4V2.6a2 2 0 0 1 4 0V4\"/>\
         <rect class=\"body\" x=\"1\" y=\"4\" width=\"6\" height=\"4.6\" rx=\"1\"/></g>\n</defs>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
        sheet(),
        markers.concat(),
    )
}

fn sheet() -> String {
    let light = "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;font-size:10px;fill:#24292f}\n\
                 .page{fill:#fff}\n.box rect{fill:#f6f8fa;stroke-width:1.5}\n\
                 .box text{text-anchor:middle;fill:#57606a}\n\
                 .box .name{font-size:12px;font-weight:bold;fill:#1f2328}\n\
                 .edge path{fill:none}\n.back path{stroke-dasharray:6 3}\n\
                 .bow{fill:none;stroke:#57606a;stroke-width:1.2}\n.body{fill:#57606a}\n";
    let dark = "text{fill:#e6edf3}\n.page{fill:#0d1117}\n.box rect{fill:#161b22}\n.box text{fill:#9da7b3}\n\
                .box .name{fill:#f0f6fc}\n.bow{stroke:#9da7b3}\n.body{fill:#9da7b3}\n";
    let colours =
        |colour: fn(&(&str, &str, &'static str)) -> String| COLOURS.each_ref().map(colour);
    let on_light = colours(|(class, light, _)| rules(class, light)).concat();
    let on_dark = colours(|(class, _, dark)| rules(class, dark)).concat();
    format!("{light}{on_light}@media (prefers-color-scheme:dark){{\n{dark}{on_dark}}}\n")
}

/// Returns the style rules of a class. The text of successful calls has the normal text colour.
fn rules(class: &str, colour: &str) -> String {
    let text = match class {
        "degraded" | "failing" => format!(".edge.{class} text{{fill:{colour}}}\n"),
        _ => String::new(),
    };
    format!(
        ".edge.{class}>path,.box.{class} rect{{stroke:{colour}}}\n.arrow.{class} path{{fill:{colour}}}\n{text}"
    )
}
