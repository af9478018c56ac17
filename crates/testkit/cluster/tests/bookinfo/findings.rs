//! The steps that were followed, with what was expected and what was seen.

use std::fmt::Write as _;

/// The quantile of the normal distribution for intervals of 99.9 %.
const Z: f64 = 3.2905;

struct Row {
    task: &'static str,
    step: String,
    expected: String,
    seen: String,
    holds: bool,
}

/// All steps, in their order.
#[derive(Default)]
pub(crate) struct Findings {
    rows: Vec<Row>,
}

impl Findings {
    /// Adds a step of a task; tasks have the names of their pages at istio.io.
    pub(crate) fn add(
        &mut self,
        task: &'static str,
        (step, expected): (&str, &str),
        seen: impl Into<String>,
        holds: bool,
    ) {
        let row = Row {
            task,
            step: step.to_owned(),
            expected: expected.to_owned(),
            seen: seen.into(),
            holds,
        };
        println!("{}", row.line());
        self.rows.push(row);
    }

    /// Prints the table; fails if a step does not hold.
    pub(crate) fn finish(&self) {
        let mut table =
            "| task | step | documentation | seen | |\n| --- | --- | --- | --- | --- |\n"
                .to_owned();
        for row in &self.rows {
            writeln!(table, "{}", row.line()).unwrap();
        }
        println!("{table}");
        let failed = self.rows.iter().filter(|row| !row.holds).count();
        println!(
            "{} of {} steps hold",
            self.rows.len() - failed,
            self.rows.len()
        );
        assert_eq!(failed, 0, "steps that do not hold");
    }
}

impl Row {
    fn line(&self) -> String {
        let verdict = if self.holds {
            "as documented"
        } else {
            "DIFFERENT"
        };
        let Self {
            task,
            step,
            expected,
            seen,
            ..
        } = self;
        format!("| {task} | {step} | {expected} | {seen} | {verdict} |")
    }
}

/// The 99.9 % interval of a share (Wilson).
pub(crate) fn interval(hits: usize, of: usize) -> (f64, f64) {
    let (hits, n) = (hits as f64, of as f64);
    let centre = (hits + Z * Z / 2.0) / (n + Z * Z);
    let half = Z / (n + Z * Z) * (hits * (n - hits) / n + Z * Z / 4.0).sqrt();
    (centre - half, centre + half)
}
