//! Suggestions for invalid command lines.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use maglor_config::suggest::advice;
use maglor_telemetry::command_line::arguments;

/// Commands of other programs, and what to use instead.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["status", "health", "ps", "proxy-status"],
        "`maglor check` diagnoses the mesh, `maglor stat` shows request statistics",
    ),
    (
        &["validate", "verify", "test", "config"],
        "use `maglor check FILE` for a proxy's configuration, `maglor analyze FILE` for manifests",
    ),
    (
        &["lint", "precheck"],
        "use `maglor analyze FILE` for manifests, `maglor check --pre` for a cluster",
    ),
    (
        &["doctor", "diagnose", "diagnostics", "bug-report"],
        "write `maglor check`",
    ),
    (
        &["proxy", "run", "serve", "start", "server"],
        "the proxy is a separate program: use `maglor-proxy FILE`",
    ),
    (
        &["controller"],
        "the controller is a separate program: use `maglor-controller`",
    ),
    (
        &["get", "describe", "list", "proxy-config"],
        "use `maglor routes`, `maglor endpoints` or `maglor receipts`",
    ),
    (
        &["viz", "ui", "kiali"],
        "use `maglor dashboard`, or `maglor top` in the terminal",
    ),
    (&["logs", "log", "watch", "requests"], "write `maglor tap`"),
    (&["edges", "topology"], "write `maglor graph`"),
    (
        &["upgrade", "update"],
        "use `maglor install | kubectl apply --server-side -f -`",
    ),
    (
        &["delete", "remove", "purge"],
        "use `maglor uninstall | kubectl delete -f -`",
    ),
    (
        &["bench", "benchmark", "load"],
        "use `maglor demo balancing`, or `maglor-lab sim` for a simulation",
    ),
    (
        &["ca", "cert", "certificate", "pki", "issue"],
        "use `maglor identity ca` or `maglor identity issue`",
    ),
    (&["completion"], "use `maglor completions SHELL`"),
    (&["version"], "write `maglor --version`"),
];

/// Flags of other programs and of earlier versions, and what to use instead.
const FLAGS: &[(&[&str], &str)] = &[
    (
        &["--format", "--emit", "--out-format", "--json", "--yaml"],
        "use `-o FORMAT`, as in `-o json`",
    ),
    (&["--ns"], "write `-n NAMESPACE`"),
    (&["--all"], "use `-A` for all namespaces"),
    (
        &[
            "--address",
            "--server",
            "--admin",
            "--url",
            "--host",
            "--endpoint",
        ],
        "use `--controller HOST:PORT` or `--proxy HOST:PORT`",
    ),
    (
        &["--watch", "-w", "--follow", "-f"],
        "`maglor top` refreshes continuously, `maglor tap` streams finished requests",
    ),
    (
        &["--file"],
        "pass the file as an argument, or with `-f FILE`",
    ),
    (
        &["--config", "-c"],
        "pass the file as an argument, as in `maglor check maglor.yaml`",
    ),
    (
        &["--duration", "--time", "--seconds"],
        "write `--for SECONDS`",
    ),
];

/// Reports an error of the command line, with a suggestion if there is one. For help and other messages, clap's text
/// is printed.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    if let Some(code) = arguments::refuse_value(error) {
        return code;
    }
    match of(error) {
        Some(text) => {
            eprintln!("error: {text}\n\nFor more information, try '--help'.");
            ExitCode::from(2)
        }
        None => error.exit(),
    }
}

fn of(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = context(ContextKind::InvalidSubcommand)?;
            let known = context(ContextKind::SuggestedSubcommand);
            let advised = advice(COMMANDS, word).filter(|_| known.is_none() || word == "status")?;
            Some(format!("unknown command `{word}`: {advised}"))
        }
        ErrorKind::UnknownArgument => {
            let word = context(ContextKind::InvalidArg)?;
            let name = word.split('=').next().unwrap_or_default();
            if !name.starts_with('-')
                && [".yaml", ".yml", ".json"]
                    .iter()
                    .any(|end| name.ends_with(end))
            {
                return Some(format!(
                    "unexpected argument `{name}`: pass files with `-f {name}`"
                ));
            }
            // If there is a similar flag, clap's own suggestion is better.
            if error.get(ContextKind::SuggestedArg).is_some() {
                return None;
            }
            Some(format!("unknown option `{name}`: {}", advice(FLAGS, name)?))
        }
        _ => None,
    }
}
