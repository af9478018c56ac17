//! Files in YAML, passed to the commands that read them. The first word of a case's group selects
//! the command:
//!
//! | word | command |
//! | --- | --- |
//! | `check` | `maglor check FILE`: a proxy's configuration |
//! | `analyze` | `maglor analyze FILE`: resources, read as the folder source of the controller reads them |
//! | `inject` | `maglor inject -f FILE`: manifests with pods |
//! | `graph`, `nodes` | `maglor plan placement --graph FILE --nodes FILE` |
//! | `observed` | `maglor plan tuning --observed FILE` |
//! | `values` | `maglor install --values FILE` |
//!
//! Expected outcomes: `ok`, the file is accepted (exit code 0); `refused`, it is not, and a message
//! is the reason (1 or 2). Texts after a colon, separated by ` + `, must be in the output.
//! For any content of the file, the command terminates by itself, within 20 s of processor time and
//! 160 MiB of memory of its own.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::table::unescape;
use super::{Case, Class, Outcome};

/// The limit of processor time of a command, unoptimised, in seconds.
const SECONDS: u32 = 20;
/// The limit of memory that it may allocate (including stacks and written pages of its libraries),
/// in KiB.
const KILOBYTES: u32 = 160 << 10;
/// The limit of its output, in bytes.
const LONGEST: usize = 50_000;

const GRAPH: &str = "services: [{name: a, replicas: 1, cpu_millis: 1, memory_mib: 1}]\nedges: []\n";
const NODES: &str = "nodes: [{name: x, cpu_millis: 100, memory_mib: 100}]\n";

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Yaml {
    /// The exit code, or the signal that terminated it.
    pub ended: Result<i32, i32>,
    /// Its standard output and standard error.
    pub text: String,
}

impl Yaml {
    /// Passes a case to `maglor`, with a file in `folder`.
    ///
    /// # Panics
    ///
    /// If the command cannot be started.
    #[must_use]
    pub fn run(case: &Case, maglor: &Path, folder: &Path) -> Self {
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).expect("a file in the folder");
            path.display().to_string()
        };
        let file = write("case.yaml", &case.bytes());
        let (graph, nodes) = (
            write("graph.yaml", GRAPH.as_bytes()),
            write("nodes.yaml", NODES.as_bytes()),
        );
        let word = case.name.split([' ', '/']).next().unwrap_or_default();
        let arguments: &[&str] = match word {
            "check" => &["check", &file],
            "analyze" => &["analyze", &file],
            "inject" => &["inject", "-f", &file],
            "graph" => &["plan", "placement", "--graph", &file, "--nodes", &nodes],
            "nodes" => &["plan", "placement", "--graph", &graph, "--nodes", &file],
            "observed" => &["plan", "tuning", "--observed", &file],
            "values" => &["install", "--values", &file],
            other => panic!("{}: no command for \"{other}\"", case.name),
        };
        let bounded = format!("ulimit -t {SECONDS}; ulimit -d {KILOBYTES}; exec \"$0\" \"$@\"");
        let output = Command::new("sh")
            .args(["-c", &bounded])
            .arg(maglor)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let status = output.status;
        let text = [output.stdout, output.stderr].concat();
        Self {
            ended: status.code().ok_or(status.signal().unwrap_or_default()),
            text: String::from_utf8_lossy(&text).into_owned(),
        }
    }

    /// Returns the outcome in short.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let (class, ended) = match self.ended {
            Ok(0) => (Class::Accepted, "exit code 0".to_owned()),
            Ok(code @ 1..=2) => (Class::Refused, format!("exit code {code}")),
            Ok(code) => (Class::Dead, format!("exit code {code}")),
            Err(signal) => (Class::Dead, format!("signal {signal}")),
        };
        let detail = format!("{ended}: {:.400}", self.text.escape_debug().to_string());
        Outcome { class, detail }
    }
}

/// Compares with the expected outcome.
///
/// # Errors
///
/// The difference.
///
/// # Panics
///
/// If the expected outcome is invalid.
pub fn check(case: &Case, seen: &Yaml) -> Result<(), String> {
    let (word, texts) = case
        .expected
        .split_once(": ")
        .unwrap_or((&case.expected, ""));
    let has = |text: &str| {
        let text = unescape(text);
        seen.text.contains(&*String::from_utf8_lossy(&text))
    };
    let class = seen.outcome().class;
    let good = match word {
        "ok" => class == Class::Accepted,
        "refused" => class == Class::Refused && !seen.text.is_empty() && seen.text.len() < LONGEST,
        other => panic!("{}: no outcome \"{other}\"", case.name),
    };
    match good && !seen.text.contains("panicked") && texts.split(" + ").all(has) {
        true => Ok(()),
        false => Err(format!(
            "{}: expected {}, got {}",
            case.name,
            case.expected,
            seen.outcome().detail
        )),
    }
}
