//! Line charts of experiments, drawn like those of the simulator.

use maglor_lab::chart::{Figure, Point, Series};

/// Returns a line; points that are NaN are left out.
pub(crate) fn line(
    name: impl Into<String>,
    points: impl IntoIterator<Item = (f64, f64)>,
) -> Series {
    let points = points.into_iter().filter(|(_, y)| y.is_finite());
    Series {
        points: points.map(|(x, y)| Point::exact(x, y)).collect(),
        ..Series::new(name)
    }
}

/// Returns a chart. Lines of one case, the part of their names before a comma, have one colour.
pub(crate) fn chart(id: &str, title: &str, x: &str, y: &str, mut series: Vec<Series>) -> Figure {
    let mut cases = Vec::new();
    for one in &mut series {
        let case = one.name.rsplit_once(", ").map(|(case, _)| case.to_owned());
        let known = cases
            .iter()
            .position(|known| case.is_some() && *known == case);
        one.colour = Some(known.unwrap_or(cases.len()));
        if known.is_none() {
            cases.push(case);
        }
    }
    Figure {
        id: id.into(),
        title: title.into(),
        x_label: x.into(),
        y_label: y.into(),
        x_log: false,
        y_log: false,
        caption: Vec::new(),
        stamp: None,
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_one_colour_and_no_holes() {
        let points = [(0.0, 1.0), (1.0, f64::NAN), (2.0, 500.0)];
        let names = ["a, Maglor", "a, Envoy", "b, Maglor", "c", "d"];
        let lines = names.map(|name| line(name, points)).into();
        let chart = chart("f", "t", "x", "y", lines);
        let colours: Vec<_> = chart.series.iter().map(|one| one.colour).collect();
        assert_eq!(colours, [0, 0, 1, 2, 3].map(Some));
        assert!(!maglor_lab::chart::svg(&chart).contains("NaN"));
    }
}
