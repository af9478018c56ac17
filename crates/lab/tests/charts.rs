//! Charts are whole: every line, marker and name is in the picture, and PNGs need no fonts of the
//! machine.

use maglor_lab::chart::{Figure, Point, Series, csv, png, svg};

fn figure() -> Figure {
    let line = |name: &str, points: &[(f64, f64, f64)]| {
        let points = points.iter();
        Series {
            points: points.map(|(x, y, w)| Point::within(*x, *y, *w)).collect(),
            ..Series::new(name)
        }
    };
    let many: Vec<_> = (1..40).map(|x| (f64::from(x), 50.0, 5.0)).collect();
    Figure {
        id: "test".to_owned(),
        title: "Latency < 80 ms & ρ = 0.75".to_owned(),
        x_label: "balancers M".to_owned(),
        y_label: "ms".to_owned(),
        x_log: true,
        y_log: false,
        caption: vec!["bars: intervals".to_owned()],
        stamp: Some("preview"),
        series: vec![
            line("formula", &[(1.0, 35.0, 0.0), (100.0, 80.0, 0.0)]),
            line("measured", &[(1.0, 36.0, 1.0), (100.0, 78.0, 2.0)]),
            line("a band", &many),
            line("out of place", &[(0.0, 1.0, 0.5), (10.0, f64::NAN, 1.0)]),
        ],
    }
}

#[test]
fn the_svg_shows_everything_and_is_well_formed() {
    let svg = svg(&figure());
    for part in [
        "Latency &lt; 80 ms &amp; ρ = 0.75",
        ">balancers M<",
        ">formula<",
        ">measured<",
        ">a band<",
        ">bars: intervals<",
        ">preview<",
        "fill-opacity",
        "prefers-color-scheme:dark",
    ] {
        assert!(svg.contains(part), "{part} is missing in\n{svg}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
}

#[test]
fn the_png_is_painted_with_its_own_font() {
    let png = png(&figure()).expect("the figure can be painted");
    assert_eq!(&png[1..4], b"PNG");
    let mut untitled = figure();
    untitled.title.clear();
    let without = size(&untitled);
    // Letters take room: a PNG without the title is smaller.
    assert!(png.len() > without + 500, "{} and {without}", png.len());
}

fn size(figure: &Figure) -> usize {
    png(figure).expect("the figure can be painted").len()
}

#[test]
fn a_doubtful_value_has_a_hollow_marker() {
    let mut doubtful = figure();
    let before = svg(&doubtful)
        .matches("fill=\"none\" stroke-width=\"1.4\"/>")
        .count();
    let point = &mut doubtful.series[1].points[1];
    *point = point.doubtful_if(true);
    let after = svg(&doubtful)
        .matches("fill=\"none\" stroke-width=\"1.4\"/>")
        .count();
    assert_eq!(after, before + 1);
}

#[test]
fn an_empty_figure_is_still_a_picture() {
    let empty = Figure {
        series: vec![Series::new("nothing")],
        y_log: true,
        ..figure()
    };
    assert!(svg(&empty).contains(">nothing<"));
    assert!(png(&empty).is_ok());
    assert_eq!(csv(&empty), "series,x,y,low,high\r\n");
}

#[test]
fn boxes_stand_beside_each_other() {
    let boxes = |name: &str, at: f64| Series {
        points: vec![
            Point::boxed(100.0, [1.0, 2.0, 3.0, 4.0, 9.0].map(|part| part * at)),
            Point::boxed(200.0, [2.0, 3.0, 4.0, 6.0, 20.0].map(|part| part * at)),
        ],
        ..Series::new(name)
    };
    let figure = Figure {
        y_log: true,
        series: vec![boxes("one mesh", 10.0), boxes("another", 20.0)],
        ..figure()
    };
    let picture = svg(&figure);
    assert_eq!(picture.matches("fill-opacity=\"0.35\"").count(), 4);
    // No line connects them, and no marker covers them: markers are in the legend only.
    assert_eq!(picture.matches("translate(").count(), 2, "{picture}");
    let lines = csv(&figure);
    assert!(lines.starts_with("series,x,y,low,high,first_quartile,third_quartile\r\n"));
    assert!(lines.contains("another,100,60.000000,20.000000,180.000000,40.000000,80.000000\r\n"));
}
