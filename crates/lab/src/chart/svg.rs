//! Draws a figure as SVG 1.1 that needs nothing else: no script, only the viewer's font, and
//! colours for a dark background if the viewer requests one.

use std::fmt::Write as _;

use super::scale::{Scale, number};
use super::{Figure, Point, Series, palette};

pub(super) const WIDTH: f64 = 860.0;
pub(super) const HEIGHT: f64 = 480.0;

/// The margins of the plot; titles, numbers and the legend are outside.
const LEFT: f64 = 68.0;
const RIGHT: f64 = 590.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 384.0;

/// The line of the horizontal axis' label, the first one of the caption, and the distance of its lines.
const X_LABEL: f64 = 426.0;
const CAPTION: f64 = 451.0;
const CAPTION_LINE: f64 = 17.0;

/// The line distance of the legend, and the mean width of a character of its font.
const LEGEND_LINE: f64 = 22.0;
const LETTER: f64 = 6.4;

/// The distance between the markers of two series at the same place, so that their error bars do not cover each
/// other.
const ASIDE: f64 = 2.5;

/// The width of a box, and the distance of the boxes of two series at the same place.
const BOX_WIDTH: f64 = 13.0;
const BOX_ASIDE: f64 = 18.0;

/// The number of points above which a series gets a band: error bars would touch each other.
const BARS: usize = 25;

/// Colours of other elements, for light and for dark backgrounds.
const STYLE: &str = "\
text{font-family:Roboto,'Segoe UI','Helvetica Neue',Arial,sans-serif}\
@media (prefers-color-scheme:dark){.paper{fill:#0d1117}text{fill:#e6edf3}\
.grid{stroke:#30363d}.frame{stroke:#8b949e}";

/// Draws the figure.
pub fn svg(figure: &Figure) -> String {
    let plot = Plot::new(figure);
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"Roboto, sans-serif\" \
         font-size=\"13\" role=\"img\">\n<title>{}</title>\n<style>{STYLE}",
        escape(&figure.title)
    );
    for (index, colour) in palette::COLOURS.iter().enumerate() {
        let dark = colour.dark;
        let _ = write!(out, ".c{index}{{stroke:{dark};fill:{dark}}}");
    }
    out.push_str("}</style>\n");
    let _ = writeln!(
        out,
        "<rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>"
    );
    stamp(&mut out, figure);
    plot.axes(&mut out, figure);
    let measured = figure
        .series
        .iter()
        .filter(|series| !is_formula(series))
        .count();
    let mut looks = Looks {
        middle: measured.saturating_sub(1) as f64 / 2.0,
        ..Looks::default()
    };
    for (index, series) in figure.series.iter().enumerate() {
        let look = looks.next(series);
        plot.series(&mut out, index, series, &look);
        legend(&mut out, index, series, &look);
    }
    for (nth, line) in figure.caption.iter().enumerate() {
        let y = CAPTION + CAPTION_LINE * nth as f64;
        text(&mut out, LEFT, y, "start", "font-size=\"12\"", line);
    }
    out.push_str("</svg>\n");
    out
}

/// Writes the figure's stamp across the plot, below everything else.
fn stamp(out: &mut String, figure: &Figure) {
    let Some(word) = figure.stamp else { return };
    let (x, y) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
    let look = format!("font-size=\"52\" opacity=\"0.13\" transform=\"rotate(-24 {x} {y})\"");
    text(out, x, y + 18.0, "middle", &look, word);
}

/// Whether a series is a line or a row of markers, and which.
enum Look {
    Dash(&'static str),
    /// The marker, and how far it is moved to the right.
    Marker(&'static str, f64),
}

/// The number of lines and of markers so far: each has its own styles.
#[derive(Default)]
struct Looks {
    lines: usize,
    markers: usize,
    /// The middle one of all markers.
    middle: f64,
}

impl Looks {
    fn next(&mut self, series: &Series) -> Look {
        if is_formula(series) {
            self.lines += 1;
            return Look::Dash(palette::dash(self.lines - 1));
        }
        let nth = self.markers;
        self.markers += 1;
        let aside = if is_boxed(series) { BOX_ASIDE } else { ASIDE };
        Look::Marker(palette::marker(nth), aside * (nth as f64 - self.middle))
    }
}

/// Whether all points are exact.
fn is_formula(series: &Series) -> bool {
    series.points.iter().all(|point| point.low == point.high)
}

/// Whether the points are boxes.
fn is_boxed(series: &Series) -> bool {
    series.points.iter().any(|point| point.quartiles.is_some())
}

/// The rectangle with the lines.
struct Plot {
    x: Scale,
    y: Scale,
}

impl Plot {
    fn new(figure: &Figure) -> Self {
        let points = || figure.series.iter().flat_map(|series| &series.points);
        // An interval below zero on a logarithmic axis ends at the axis.
        let heights = points().flat_map(|point| [point.low, point.y, point.high]);
        Self {
            x: Scale::around(points().map(|point| point.x), figure.x_log, false),
            y: Scale::around(heights, figure.y_log, true),
        }
    }

    fn across(&self, x: f64) -> Option<f64> {
        Some(LEFT + self.x.place(x)? * (RIGHT - LEFT))
    }

    fn down(&self, y: f64) -> Option<f64> {
        Some(BOTTOM - self.y.place(self.y.clamp(y))? * (BOTTOM - TOP))
    }

    fn axes(&self, out: &mut String, figure: &Figure) {
        text(out, LEFT, 26.0, "start", "font-size=\"16\"", &figure.title);
        for tick in self.x.ticks() {
            let Some(x) = self.across(tick) else { continue };
            line(out, "grid", "#e2e2e2", [x, TOP, x, BOTTOM]);
            text(out, x, BOTTOM + 18.0, "middle", "", &number(tick));
        }
        for tick in self.y.ticks() {
            let Some(y) = self.down(tick) else { continue };
            line(out, "grid", "#e2e2e2", [LEFT, y, RIGHT, y]);
            text(out, LEFT - 8.0, y + 4.5, "end", "", &number(tick));
        }
        line(out, "frame", "#555555", [LEFT, BOTTOM, RIGHT, BOTTOM]);
        line(out, "frame", "#555555", [LEFT, TOP, LEFT, BOTTOM]);
        let middle = f64::midpoint(LEFT, RIGHT);
        text(out, middle, X_LABEL, "middle", "", &figure.x_label);
        let middle = f64::midpoint(TOP, BOTTOM);
        let turned = format!("transform=\"rotate(-90 18 {middle})\"");
        text(out, 18.0, middle, "middle", &turned, &figure.y_label);
    }

    fn series(&self, out: &mut String, index: usize, series: &Series, look: &Look) {
        let aside = match look {
            Look::Dash(_) => 0.0,
            Look::Marker(_, aside) => *aside,
        };
        let place = |point| {
            let point: &Point = point;
            Some((point, self.across(point.x)? + aside, self.down(point.y)?))
        };
        let places: Vec<_> = series.points.iter().filter_map(place).collect();
        group(out, series.colour.unwrap_or(index));
        let path = places.iter().enumerate().map(|(nth, (_, x, y))| {
            let command = if nth == 0 { 'M' } else { 'L' };
            format!("{command}{x:.1} {y:.1}")
        });
        let path: String = path.collect();
        match look {
            Look::Dash(dash) => stroke(out, &path, 2.2, dash),
            Look::Marker(..) if is_boxed(series) => {
                self.bars(out, &places);
                self.boxes(out, &places);
            }
            Look::Marker(marker, _) => {
                stroke(out, &path, 1.4, "");
                if places.len() > BARS {
                    self.band(out, &places);
                } else {
                    self.bars(out, &places);
                }
                for (point, x, y) in &places {
                    let look = match point.doubtful {
                        true => "fill=\"none\" stroke-width=\"1.4\"",
                        false => "stroke=\"none\"",
                    };
                    let _ = writeln!(
                        out,
                        "<path transform=\"translate({x:.1} {y:.1})\" d=\"{marker}\" {look}/>"
                    );
                }
            }
        }
        out.push_str("</g>\n");
    }

    fn bars(&self, out: &mut String, places: &[(&Point, f64, f64)]) {
        let mut path = String::new();
        for (point, x, _) in places {
            let (Some(low), Some(high)) = (self.down(point.low), self.down(point.high)) else {
                continue;
            };
            let (left, right) = (x - 3.5, x + 3.5);
            let _ = write!(
                path,
                "M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}H{right:.1}M{left:.1} {high:.1}H{right:.1}"
            );
        }
        stroke(out, &path, 1.2, "");
    }

    /// Draws boxes over their whiskers.
    fn boxes(&self, out: &mut String, places: &[(&Point, f64, f64)]) {
        for (point, x, median) in places {
            let quartiles = point.quartiles.unwrap_or([point.low, point.high]);
            let [Some(first), Some(third)] = quartiles.map(|quartile| self.down(quartile)) else {
                continue;
            };
            let left = x - BOX_WIDTH / 2.0;
            let _ = writeln!(
                out,
                "<path class=\"paper\" stroke=\"none\" fill=\"#ffffff\" d=\"M{left:.1} {first:.1}h{BOX_WIDTH}V{third:.1}h-{BOX_WIDTH}Z\"/>\n\
                 <path fill-opacity=\"0.35\" stroke-width=\"1.4\" d=\"M{left:.1} {first:.1}h{BOX_WIDTH}V{third:.1}h-{BOX_WIDTH}Z\"/>\n\
                 <path fill=\"none\" stroke-width=\"2.4\" d=\"M{left:.1} {median:.1}h{BOX_WIDTH}\"/>"
            );
        }
    }

    fn band(&self, out: &mut String, places: &[(&Point, f64, f64)]) {
        let upper = places.iter().map(|(point, x, _)| (*x, point.high));
        let lower = places.iter().rev().map(|(point, x, _)| (*x, point.low));
        let corners: Vec<_> = upper
            .chain(lower)
            .filter_map(|(x, y)| Some(format!("{x:.1} {:.1}", self.down(y)?)))
            .collect();
        let path = corners.join("L");
        let _ = writeln!(
            out,
            "<path d=\"M{path}Z\" stroke=\"none\" fill-opacity=\"0.2\"/>"
        );
    }
}

/// Draws one line of the legend, right of the plot.
fn legend(out: &mut String, index: usize, series: &Series, look: &Look) {
    let x = RIGHT + 18.0;
    let y = TOP + 10.0 + LEGEND_LINE * index as f64;
    group(out, series.colour.unwrap_or(index));
    let path = format!("M{x} {y}h26");
    match look {
        Look::Dash(dash) => stroke(out, &path, 2.2, dash),
        Look::Marker(marker, _) => {
            stroke(out, &path, 1.4, "");
            let middle = x + 13.0;
            let _ = writeln!(
                out,
                "<path transform=\"translate({middle} {y})\" d=\"{marker}\" stroke=\"none\"/>"
            );
        }
    }
    out.push_str("</g>\n");
    let left = x + 34.0;
    // A name that would exceed the picture is condensed.
    let room = WIDTH - left - 6.0;
    let narrow = if series.name.chars().count() as f64 * LETTER > room {
        format!("textLength=\"{room}\" lengthAdjust=\"spacingAndGlyphs\"")
    } else {
        String::new()
    };
    text(out, left, y + 4.5, "start", &narrow, &series.name);
}

/// Opens the group of a series, whose elements inherit its colour.
fn group(out: &mut String, colour: usize) {
    let class = colour % palette::COLOURS.len();
    let colour = palette::colour_of(colour).light;
    let _ = writeln!(
        out,
        "<g class=\"c{class}\" stroke=\"{colour}\" fill=\"{colour}\">"
    );
}

fn stroke(out: &mut String, path: &str, width: f64, dash: &str) {
    let _ = write!(
        out,
        "<path d=\"{path}\" fill=\"none\" stroke-width=\"{width}\" stroke-linejoin=\"round\""
    );
    if !dash.is_empty() {
        let _ = write!(out, " stroke-dasharray=\"{dash}\"");
    }
    out.push_str("/>\n");
}

fn line(out: &mut String, class: &str, colour: &str, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(
        out,
        "<path class=\"{class}\" stroke=\"{colour}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>"
    );
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, attributes: &str, text: &str) {
    let text = escape(text);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#1f1f1f\" \
         {attributes}>{text}</text>"
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
