//! Command lines that cannot be understood: what to write instead.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use maglor_config::suggest::advice;

/// Commands of other programs.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["status", "health", "ps", "proxy-status"],
        "`maglor check` says what is wrong, `maglor stat` how requests fare",
    ),
    (
        &["validate", "verify", "test", "config"],
        "write `maglor check FILE` for a proxy's configuration, `maglor analyze FILE` for resources",
    ),
    (
        &["lint", "precheck"],
        "write `maglor analyze FILE` for resources, `maglor check --pre` for a cluster",
    ),
    (
        &["doctor", "diagnose", "diagnostics", "bug-report"],
        "write `maglor check`",
    ),
    (
        &["proxy", "run", "serve", "start", "server"],
        "the proxy is the program `maglor-proxy`: write `maglor-proxy FILE`",
    ),
    (
        &["controller"],
        "the controller is the program `maglor-controller`",
    ),
    (
        &["get", "describe", "list", "proxy-config"],
        "write `maglor routes`, `maglor endpoints` or `maglor receipts`",
    ),
    (
        &["dashboard", "viz", "ui"],
        "write `maglor top`, or `maglor graph -o svg`",
    ),
    (&["logs", "log", "watch", "requests"], "write `maglor tap`"),
    (&["edges", "topology"], "write `maglor graph`"),
    (
        &["upgrade", "update"],
        "write `maglor install | kubectl apply --server-side -f -`",
    ),
    (
        &["delete", "remove", "purge"],
        "write `maglor uninstall | kubectl delete -f -`",
    ),
    (
        &["bench", "benchmark", "load"],
        "write `maglor demo balancing`, or `maglor sim` without servers",
    ),
    (
        &["ca", "cert", "certificate", "pki", "issue"],
        "write `maglor identity ca` or `maglor identity issue`",
    ),
    (&["completion"], "write `maglor completions SHELL`"),
    (&["version"], "write `maglor --version`"),
];

/// Flags of other programs, and of earlier versions.
const FLAGS: &[(&[&str], &str)] = &[
    (
        &["--format", "--emit", "--out-format", "--json", "--yaml"],
        "write `-o FORMAT`, as in `-o json`",
    ),
    (&["--ns"], "write `-n NAMESPACE`"),
    (&["--all"], "write `-A` for all namespaces"),
    (
        &[
            "--address",
            "--server",
            "--admin",
            "--url",
            "--host",
            "--endpoint",
        ],
        "write `--controller HOST:PORT` or `--proxy HOST:PORT`",
    ),
    (
        &["--watch", "-w", "--follow", "-f"],
        "`maglor top` shows it again and again, `maglor tap` requests as they end",
    ),
    (&["--file"], "name the file without a flag, or by `-f FILE`"),
    (
        &["--config", "-c"],
        "name the file without a flag, as in `maglor check maglor.yaml`",
    ),
    (
        &["--duration", "--time", "--seconds"],
        "write `--for SECONDS`",
    ),
];

/// What the library says of values, and what we say.
const VALUES: &[(&str, &str)] = &[
    ("invalid digit found in string", "write a whole number"),
    (
        "cannot parse integer from empty string",
        "write a whole number",
    ),
    ("invalid float literal", "write a number, such as 0.75"),
    (
        "cannot parse float from empty string",
        "write a number, such as 0.75",
    ),
    (
        "number too large to fit in target type",
        "the number is too large",
    ),
    (
        "number too small to fit in target type",
        "the number is too small",
    ),
];

/// Ends with what is wrong with the command line. A value that cannot be read is told in one line; help, and what else clap
/// has to say, is its own.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::ValueValidation {
        let text = error.to_string();
        let mut line = text.lines().next().unwrap_or_default().to_owned();
        for (theirs, ours) in VALUES {
            line = line.replace(theirs, ours);
        }
        eprintln!("{line}");
        return ExitCode::from(2);
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
            Some(format!("there is no command `{word}`: {advised}"))
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
                    "`{name}`: a file is given by a flag here: write `-f {name}`"
                ));
            }
            // What is nearly right is better said by the library.
            if error.get(ContextKind::SuggestedArg).is_some() {
                return None;
            }
            Some(format!(
                "there is no flag `{name}` here: {}",
                advice(FLAGS, name)?
            ))
        }
        _ => None,
    }
}
