//! Writes a figure as CSV, one point a line (RFC 4180).

use std::fmt::Write as _;

use super::Figure;

/// Returns the points of all series. `low` and `high` are the ends of the confidence interval; they
/// equal `y` if the value is exact. The rows of a box plot end with its quartiles.
pub fn csv(figure: &Figure) -> String {
    let mut points = figure.series.iter().flat_map(|series| &series.points);
    let boxed = points.any(|point| point.quartiles.is_some());
    let mut text = String::from(match boxed {
        true => "series,x,y,low,high,first_quartile,third_quartile\r\n",
        false => "series,x,y,low,high\r\n",
    });
    for series in &figure.series {
        let name = field(&series.name);
        for point in &series.points {
            let (x, y, low, high) = (point.x, point.y, point.low, point.high);
            let _ = write!(text, "{name},{x},{y:.6},{low:.6},{high:.6}");
            if let Some([first, third]) = point.quartiles {
                let _ = write!(text, ",{first:.6},{third:.6}");
            }
            text.push_str("\r\n");
        }
    }
    text
}

/// Quotes a field that contains a comma, quote or line break.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Point, Series};
    use super::*;

    #[test]
    fn names_with_commas_are_quoted() {
        let figure = Figure {
            id: "a".to_owned(),
            title: String::new(),
            x_label: String::new(),
            y_label: String::new(),
            x_log: false,
            y_log: false,
            caption: Vec::new(),
            stamp: None,
            series: vec![Series {
                points: vec![Point::within(1.5, 2.0, 0.25)],
                ..Series::new("a-lsq(choices=2,\"x\")")
            }],
        };
        assert_eq!(
            csv(&figure),
            "series,x,y,low,high\r\n\
             \"a-lsq(choices=2,\"\"x\"\")\",1.5,2.000000,1.750000,2.250000\r\n"
        );
    }
}
