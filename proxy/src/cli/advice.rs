//! Suggestions for invalid command lines: the flag or command of this program that the user probably meant.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use maglor_config::suggest::advice;

/// Flags of other programs, and what to use instead.
const FLAGS: &[(&[&str], &str)] = &[
    (
        &[
            "-p",
            "--port",
            "--bind",
            "-b",
            "--address",
            "--addr",
            "--listen-address",
            "--host",
            "--http-port",
            "--from",
        ],
        "write `--listen ADDR:PORT`, as in `--listen 0.0.0.0:8080`",
    ),
    (
        &[
            "--backend",
            "--server",
            "--to",
            "--target",
            "--upstreams",
            "--forward-to",
            "--dest",
            "--url",
            "--endpoint",
            "--cluster",
        ],
        "write `--upstream ADDR:PORT`, as in `--upstream 127.0.0.1:9001`; repeat it for more servers",
    ),
    (
        &[
            "-f",
            "--file",
            "--config-file",
            "--config-path",
            "--conf",
            "--configfile",
            "--config-yaml",
            "--adapter",
        ],
        "write `--config FILE`, or just the file",
    ),
    (
        &[
            "-t",
            "--test",
            "--validate",
            "--mode",
            "--dry-run",
            "--verify",
            "--check-config",
            "--lint",
            "-n",
        ],
        "write `--check`, as in `maglor-proxy --check maglor.yaml`",
    ),
    (
        &[
            "--admin-address",
            "--admin-port",
            "--stats",
            "--metrics",
            "--metrics-address",
            "--admin-address-path",
        ],
        "write `--admin ADDR:PORT`, as in `--admin 127.0.0.1:9901`",
    ),
    (
        &[
            "--concurrency",
            "--threads",
            "-j",
            "--nbthread",
            "--worker-threads",
        ],
        "write `--workers N`",
    ),
    (
        &[
            "--balance",
            "--lb",
            "--lb-policy",
            "--algorithm",
            "--load-balancing",
            "--strategy",
        ],
        "write `--policy NAME`, as in `--policy 'lor(choices=2)'`",
    ),
    (
        &["--weight"],
        "write the weight behind its server, as in `--upstream 127.0.0.1:9001,weight=2`",
    ),
    (
        &["--verbose", "--debug", "-l", "--loglevel", "-d", "-vv"],
        "write `--log-level debug`",
    ),
    (
        &[
            "--tls",
            "--cert",
            "--certificate",
            "--key",
            "--private-key",
            "--https",
            "--ssl",
            "--insecure",
        ],
        "TLS needs a configuration file: `tls: {certificate: FILE, private_key: FILE}` of a listener",
    ),
    (
        &["-s", "--signal", "--reload-config", "--restart"],
        "send a signal: `kill -HUP PID` reloads, `kill -TERM PID` drains and ends",
    ),
    (
        &["--daemon", "--background", "-D", "--detach"],
        "the proxy stays in the foreground: a service manager runs it (docs/recipes/systemd.md)",
    ),
    (
        &[
            "--timeout",
            "--retries",
            "--rate-limit",
            "--route",
            "--path",
            "--header",
            "--domain",
            "--match",
        ],
        "routes need a configuration file: `--print-config` with your flags prints one to begin with",
    ),
];

/// Commands of other programs, and what to use instead.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &[
            "check",
            "validate",
            "test",
            "verify",
            "lint",
            "configtest",
            "-t",
        ],
        "write `maglor-proxy --check FILE`",
    ),
    (
        &["run", "start", "serve", "proxy", "server", "up", "daemon"],
        "write `maglor-proxy FILE`, or `maglor-proxy --listen ADDR --upstream ADDR`",
    ),
    (
        &["reverse-proxy", "reverse_proxy", "forward"],
        "write `maglor-proxy --listen 127.0.0.1:8080 --upstream 127.0.0.1:9001`",
    ),
    (
        &["reload", "restart"],
        "a changed file is reloaded automatically; `kill -HUP PID` reloads it now",
    ),
    (
        &["stop", "quit", "kill", "drain"],
        "send a signal: `kill -TERM PID` drains and ends",
    ),
    (&["version"], "write `maglor-proxy --version`"),
    (&["help"], "write `maglor-proxy --help`"),
    (
        &["fmt", "format", "adapt", "print", "config"],
        "write `maglor-proxy --print-config FILE`",
    ),
];

/// Returns the error message for a first argument that is a command of another program, unless a file of that name
/// exists.
pub(super) fn command(words: &[OsString]) -> Option<String> {
    let word = words.get(1)?.to_str()?;
    let advised = advice(COMMANDS, word)?;
    (!Path::new(word).exists())
        .then(|| format!("error: there is no command and no file `{word}`: {advised}\n"))
}

/// Returns a suggestion to append to a clap error, or `None` if clap's own message suffices. Always `None` for
/// subcommands, because the suggestions are about flags that only the main command has.
pub(super) fn of(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let commands = <super::Args as clap::CommandFactory>::command();
    let mut names = commands.get_subcommands().map(clap::Command::get_name);
    if names.any(|name| words.iter().skip(1).any(|word| word == name)) {
        return None;
    }
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let given = |flag: &str| {
        let mut words = words.iter().filter_map(|word| word.to_str());
        words.any(|word| word == flag || word.starts_with(&format!("{flag}=")))
    };
    let text = match error.kind() {
        ErrorKind::UnknownArgument => {
            let flag = context(ContextKind::InvalidArg)?;
            let name = flag.split('=').next().unwrap_or_default();
            format!("there is no flag `{name}`: {}", advice(FLAGS, name)?)
        }
        ErrorKind::MissingRequiredArgument if given("--listen") => {
            "`--listen` needs a server to forward to: add `--upstream ADDR:PORT`, as in `--upstream 127.0.0.1:9001`".into()
        }
        ErrorKind::MissingRequiredArgument if given("--upstream") => {
            "`--upstream` needs an address to listen on: add `--listen ADDR:PORT`, as in `--listen 127.0.0.1:8080`".into()
        }
        ErrorKind::MissingRequiredArgument if words.len() < 3 => {
            "there is no configuration: write `maglor-proxy FILE`, or `maglor-proxy --listen 127.0.0.1:8080 --upstream \
             127.0.0.1:9001`"
                .into()
        }
        ErrorKind::ArgumentConflict => {
            let flags = ["--listen", "--upstream", "--policy", "--admin", "--workers"];
            match flags.iter().find(|flag| given(flag)) {
                Some(flag) => format!(
                    "a configuration is either a file or flags: write `{flag}` into the file, or leave the file out"
                ),
                None => "one configuration file is read: leave the other out".into(),
            }
        }
        _ => return None,
    };
    Some(format!(
        "error: {text}\n\nFor more information, try '--help'.\n"
    ))
}
