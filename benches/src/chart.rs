//! Simple line charts as SVG.

use crate::peer::Subject;

const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 270.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Colours that can also be distinguished without red or green, after Okabe and Ito.
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];

/// One chart.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// The name of the file, without its suffix.
    pub(crate) file: String,
    title: String,
    x: String,
    y: String,
    lines: Vec<Line>,
    logarithmic: bool,
}

/// One line of a chart.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    name: String,
    subject: Subject,
    points: Vec<(f64, f64)>,
}

impl Line {
    /// Creates a line; points that are NaN are left out.
    pub(crate) fn new(
        name: impl Into<String>,
        subject: Subject,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let points = points.into_iter().filter(|(_, y)| y.is_finite()).collect();
        Self {
            name: name.into(),
            subject,
            points,
        }
    }

    /// Returns the dash pattern; Maglor's lines are solid.
    fn dashes(&self) -> &'static str {
        match self.subject {
            Subject::Maglor => "none",
            Subject::Direct => "2 3",
            _ => "7 4",
        }
    }
}

impl Chart {
    pub(crate) fn new(file: &str, title: &str, x: &str, y: &str, lines: Vec<Line>) -> Self {
        Self {
            file: file.into(),
            title: title.into(),
            x: x.into(),
            y: y.into(),
            lines,
            logarithmic: false,
        }
    }

    /// Makes the vertical axis logarithmic.
    pub(crate) fn logarithmic(mut self) -> Self {
        self.logarithmic = true;
        self
    }

    /// Returns the whole file.
    pub(crate) fn svg(&self) -> String {
        let scale = Scale::of(self);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
            self.title
        );
        svg.push_str(&self.axes(&scale));
        for (index, line) in self.lines.iter().enumerate() {
            svg.push_str(&self.line(&scale, index, line));
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Returns the colour of a line: lines of one case have one colour, for all proxies.
    fn colour(&self, index: usize) -> &'static str {
        let case = |line: &Line| line.name.rsplit_once(", ").map(|(case, _)| case.to_owned());
        let mut cases: Vec<_> = self.lines.iter().map(case).collect();
        let own = cases.get(index).cloned().flatten();
        cases.dedup();
        let place = cases.iter().position(|case| *case == own).unwrap_or(0);
        COLOURS[place % COLOURS.len()]
    }

    fn axes(&self, scale: &Scale) -> String {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let mut svg = String::new();
        for tick in scale.y_ticks() {
            let y = scale.y(tick);
            svg.push_str(&format!(
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>\n",
                LEFT - 6.0,
                y + 4.0
            ));
        }
        for tick in ticks(scale.x_low, scale.x_high) {
            let x = scale.x(tick);
            svg.push_str(&format!(
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\" stroke=\"#888\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>\n",
                bottom + 5.0,
                bottom + 19.0
            ));
        }
        let middle = f64::midpoint(TOP, bottom);
        svg.push_str(&format!(
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\" stroke=\"#888\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"18\" y=\"{middle}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 18 {middle})\">{}</text>\n",
            f64::midpoint(LEFT, right),
            HEIGHT - 12.0,
            self.x,
            self.y
        ));
        svg
    }

    fn line(&self, scale: &Scale, index: usize, line: &Line) -> String {
        let at = |&(x, y): &(f64, f64)| format!("{:.1},{:.1}", scale.x(x), scale.y(y));
        let points: Vec<_> = line.points.iter().map(at).collect();
        let (colour, dashes) = (self.colour(index), line.dashes());
        let style =
            format!("stroke=\"{colour}\" stroke-dasharray=\"{dashes}\" stroke-width=\"1.8\"");
        let (x, y) = (WIDTH - RIGHT + 14.0, TOP + 10.0 + 18.0 * index as f64);
        format!(
            "<polyline fill=\"none\" {style} points=\"{}\"/>\n\
             <line x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" {style}/>\
             <text x=\"{}\" y=\"{}\">{}</text>\n",
            points.join(" "),
            x + 26.0,
            x + 32.0,
            y + 4.0,
            line.name
        )
    }
}

/// Maps values to positions.
#[derive(Debug, Clone, Copy)]
struct Scale {
    x_low: f64,
    x_high: f64,
    y_low: f64,
    y_high: f64,
    logarithmic: bool,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        let all = || chart.lines.iter().flat_map(|line| line.points.iter());
        let low = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let high = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::NEG_INFINITY, f64::max);
        let (x_low, x_high) = (
            low(&mut all().map(|(x, _)| *x)),
            high(&mut all().map(|(x, _)| *x)),
        );
        let (y_low, y_high) = (
            low(&mut all().map(|(_, y)| *y)),
            high(&mut all().map(|(_, y)| *y)),
        );
        let (y_low, y_high) = if chart.logarithmic {
            let power = |y: f64| 10_f64.powf(y);
            let (low, high) = (
                y_low.max(1e-3).log10().floor(),
                y_high.max(1e-3).log10().ceil(),
            );
            (power(low), power(high.max(low + 1.0)))
        } else {
            (0.0, (y_high * 1.05).max(1.0))
        };
        Self {
            x_low,
            x_high: x_high.max(x_low + 1.0),
            y_low,
            y_high,
            logarithmic: chart.logarithmic,
        }
    }

    fn x(&self, value: f64) -> f64 {
        let share = (value - self.x_low) / (self.x_high - self.x_low);
        LEFT + share * (WIDTH - RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.y_low) / self.y_low).log10() / (self.y_high / self.y_low).log10()
        } else {
            (value - self.y_low) / (self.y_high - self.y_low)
        };
        HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
    }

    fn y_ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            return ticks(self.y_low, self.y_high);
        }
        let powers = std::iter::successors(Some(self.y_low), |tick| Some(tick * 10.0));
        powers
            .take_while(|tick| *tick <= self.y_high * 1.01)
            .collect()
    }
}

/// Returns about six round numbers between two.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    if !low.is_finite() || !high.is_finite() || high <= low {
        return Vec::new();
    }
    let rough = (high - low) / 6.0;
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    // Rounded, so that 0.30000000000000004 is not written on an axis.
    let round = |value: f64| (value * 1e6).round() / 1e6;
    (first..=last)
        .map(|count| round(count as f64 * step))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(80.0, 120.0), [80.0, 90.0, 100.0, 110.0, 120.0]);
        assert!(ticks(f64::INFINITY, 0.0).is_empty());
    }

    #[test]
    fn a_chart_has_its_lines_and_no_holes() {
        let points = [(0.0, 1.0), (1.0, f64::NAN), (2.0, 500.0)];
        let line = |name: &str, subject| Line::new(name, subject, points);
        let lines = vec![
            line("a, Maglor", Subject::Maglor),
            line("a, Envoy", Subject::Envoy),
            line("b, Maglor", Subject::Maglor),
        ];
        let chart = Chart::new("f", "t", "x", "y", lines).logarithmic();
        let svg = chart.svg();
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(chart.colour(0), chart.colour(1));
        assert_ne!(chart.colour(0), chart.colour(2));
    }

    #[test]
    fn nothing_to_show_is_no_failure() {
        let svg = Chart::new("f", "t", "x", "y", Vec::new()).svg();
        assert!(svg.ends_with("</svg>\n"));
    }
}
