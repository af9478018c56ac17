//! `maglor analyze`: reports unsupported or conflicting fields in manifests before they are
//! applied.

use std::path::PathBuf;
use std::process::ExitCode;

use maglor_controller::analyze::{Analysis, Problem, Severity, analyze};
use maglor_telemetry::command_line::output;
use serde_json::{Value, json};

use crate::input::read_text;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Manifests (YAML or JSON, several documents each); `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Output {
    /// `{"resources": …, "problems": [{"file", "line", "resource", "severity", "reason", "message"}]}`.
    Json,
    /// One line for each problem, and the number of problems.
    #[default]
    Text,
}

/// Prints the problems. The exit code is 1 if a resource would not be accepted, and 2 if a file cannot be read.
pub(crate) fn run(options: &Options) -> ExitCode {
    let mut files = Vec::new();
    for path in &options.files {
        match read_text(path) {
            Ok(text) => files.push((path.display().to_string(), text)),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                return ExitCode::from(2);
            }
        }
    }
    let analysis = analyze(&files);
    output::print(&match options.output {
        Output::Json => format!("{:#}\n", as_json(&analysis)),
        Output::Text => as_text(&analysis),
    });
    match count(&analysis, Severity::Error) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn count(analysis: &Analysis, severity: Severity) -> usize {
    let problems = analysis.problems.iter();
    problems
        .filter(|problem| problem.severity == severity)
        .count()
}

fn as_text(analysis: &Analysis) -> String {
    let mut text = String::new();
    for problem in &analysis.problems {
        text.push_str(&format!("{problem}\n"));
    }
    let (errors, warnings) = (
        count(analysis, Severity::Error),
        count(analysis, Severity::Warning),
    );
    text.push_str(&format!(
        "{} resources, {} of other kinds: {errors} errors, {warnings} warnings\n",
        analysis.resources, analysis.others
    ));
    text
}

fn as_json(analysis: &Analysis) -> Value {
    let problem = |problem: &Problem| {
        json!({
            "file": problem.file,
            "line": problem.line,
            "resource": problem.resource,
            "severity": match problem.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            "reason": problem.reason,
            "message": problem.message,
        })
    };
    json!({
        "resources": analysis.resources,
        "others": analysis.others,
        "problems": analysis.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}
