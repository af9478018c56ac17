//! Line charts.

mod figure;

pub use figure::{Figure, Point, Series};
