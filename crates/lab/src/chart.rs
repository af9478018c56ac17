//! Line charts: their contents ([`Figure`]), and their output as SVG, PNG and CSV.
//!
//! The picture is drawn once, as SVG; the PNG is that SVG rendered by resvg, with an embedded font,
//! so that it looks the same on a machine without fonts. A series of exact points is a formula: a
//! line. A series with confidence intervals was measured: markers with error bars, or a band where
//! bars would touch.

mod csv;
mod figure;
mod palette;
mod png;
mod scale;
mod svg;

pub use csv::csv;
pub use figure::{Figure, Point, Series};
pub use png::{PngError, png};
pub use svg::svg;
