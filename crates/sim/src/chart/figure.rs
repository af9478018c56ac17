//! What a line chart shows, without how it looks.

/// One line chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Names the files: `3a` becomes `3a.svg`, `3a.png`, `3a.csv`.
    pub id: String,
    /// One line above the chart.
    pub title: String,
    /// What the horizontal axis measures, with its unit.
    pub x_label: String,
    /// What the vertical axis measures, with its unit.
    pub y_label: String,
    /// Whether the horizontal axis is logarithmic.
    pub x_log: bool,
    /// Whether the vertical axis is logarithmic.
    pub y_log: bool,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
}

/// One line of a [`Figure`].
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<Point>,
}

/// One point of a [`Series`], with the interval that its value is known to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The lower end of the confidence interval; `y` where the value is exact.
    pub low: f64,
    /// The upper end of the confidence interval; `y` where the value is exact.
    pub high: f64,
}

impl Series {
    /// A line without points yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            points: Vec::new(),
        }
    }
}

impl Point {
    /// A value without uncertainty, from a formula.
    pub fn exact(x: f64, y: f64) -> Self {
        Self {
            x,
            y,
            low: y,
            high: y,
        }
    }

    /// A value that is known to `half_width` on either side.
    pub fn within(x: f64, y: f64, half_width: f64) -> Self {
        Self {
            x,
            y,
            low: y - half_width,
            high: y + half_width,
        }
    }
}
