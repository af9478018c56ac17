//! The contents of a line chart, without its appearance.

/// One line chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The base of file names: `3a` becomes `3a.svg`, `3a.png`, `3a.csv`.
    pub id: String,
    /// The title, one line above the chart.
    pub title: String,
    /// The label of the horizontal axis, with the unit.
    pub x_label: String,
    /// The label of the vertical axis, with the unit.
    pub y_label: String,
    /// Whether the horizontal axis is logarithmic.
    pub x_log: bool,
    /// Whether the vertical axis is logarithmic.
    pub y_log: bool,
    /// The meaning of markers and intervals, below the chart.
    pub caption: Vec<String>,
    /// A word across the chart, if its values are provisional.
    pub stamp: Option<&'static str>,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
}

/// One line of a [`Figure`].
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// The number of its colour, if that is not its place in the legend: what belongs together has one colour.
    pub colour: Option<usize>,
    /// The points from left to right.
    pub points: Vec<Point>,
}

/// A point of a [`Series`], with the confidence interval of its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The horizontal position.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The lower end of the confidence interval; `y` if the value is exact.
    pub low: f64,
    /// The upper end of the confidence interval; `y` if the value is exact.
    pub high: f64,
    /// Whether the value is known to be off by more than its interval: its marker is hollow.
    pub doubtful: bool,
    /// The quartiles of a box plot, of which `y` is the median, and `low` and `high` are the whiskers.
    pub quartiles: Option<[f64; 2]>,
}

impl Series {
    /// Creates a line without points.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            colour: None,
            points: Vec::new(),
        }
    }
}

impl Point {
    /// Creates a point without uncertainty, from a formula.
    pub fn exact(x: f64, y: f64) -> Self {
        Self {
            x,
            y,
            low: y,
            high: y,
            doubtful: false,
            quartiles: None,
        }
    }

    /// Creates a point with a confidence interval of `half_width` on either side.
    pub fn within(x: f64, y: f64, half_width: f64) -> Self {
        Self {
            x,
            y,
            low: y - half_width,
            high: y + half_width,
            doubtful: false,
            quartiles: None,
        }
    }

    /// Creates a box of a box plot, from the lower whisker to the upper one.
    pub fn boxed(x: f64, [low, first, median, third, high]: [f64; 5]) -> Self {
        Self {
            x,
            y: median,
            low,
            high,
            doubtful: false,
            quartiles: Some([first, third]),
        }
    }

    /// Returns the point with a hollow marker if its value is doubtful.
    #[must_use]
    pub fn doubtful_if(self, doubtful: bool) -> Self {
        Self { doubtful, ..self }
    }
}
