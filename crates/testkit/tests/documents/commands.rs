//! Command lines in documents: split as a shell does it, and compared with the definitions of our programs.

use std::collections::BTreeMap;

use super::definitions::{self, Command};
use super::pages;

/// Programs, and tasks that are programs of their own: name, file, and type of the definition.
const PROGRAMS: [(&str, &str, &str); 17] = [
    ("maglor", "crates/cli/src/main.rs", "Cli"),
    ("maglor-controller", "controller/src/args.rs", "Cli"),
    ("maglor-lab", "crates/lab/src/main.rs", "Cli"),
    ("maglor-proxy", "proxy/src/cli/mod.rs", "Args"),
    ("cargo xtask", "crates/xtask/src/main.rs", "Task"),
    (
        "cluster",
        "crates/testkit/src/cluster/command.rs",
        "Arguments",
    ),
    ("compare", "benches/src/options.rs", "Cli"),
    ("conformance gateway", CONFORMANCE, "Conformance"),
    ("conformance mesh", CONFORMANCE, "Conformance"),
    (
        "control-planes",
        "benches/src/control_planes/options.rs",
        "Options",
    ),
    ("demo", "crates/cli/src/bin/maglor-demo.rs", "Cli"),
    (
        "distribution",
        "benches/src/distribution/options.rs",
        "Options",
    ),
    ("hostile", "benches/src/hostile.rs", "Options"),
    ("mesh", "benches/src/mesh/options.rs", "Cli"),
    ("place", "benches/src/place/options.rs", "Options"),
    ("resilience", "benches/src/resilience/options.rs", "Options"),
    ("users", "benches/src/users/options.rs", "Options"),
];
const CONFORMANCE: &str = "crates/testkit/src/cluster/conformance.rs";

/// Other programs, and shell keywords.
const FOREIGN: [&str; 26] = [
    "cd",
    "certbot",
    "curl",
    "do",
    "docker",
    "done",
    "echo",
    "eval",
    "export",
    "for",
    "git",
    "go",
    "helm",
    "install",
    "jq",
    "k3s",
    "kubectl",
    "lego",
    "openssl",
    "sidecar",
    "sudo",
    "systemctl",
    "while",
    "sh",
    "…",
    "}",
];

/// Returns the errors in the command lines of a text, and the number of our commands.
#[derive(Default)]
pub(crate) struct Checked {
    pub(crate) ours: usize,
    pub(crate) problems: Vec<String>,
}

pub(crate) struct Programs(BTreeMap<&'static str, Command>);

impl Programs {
    pub(crate) fn read() -> Self {
        let programs = PROGRAMS.iter();
        Self(
            programs
                .map(|(name, file, kind)| (*name, definitions::of(file, kind)))
                .collect(),
        )
    }

    /// Checks the command lines of a shell script. `foreign`: commands of others must be known, too.
    pub(crate) fn script(&self, text: &str, foreign: bool) -> Checked {
        let mut checked = Checked::default();
        for words in commands(text) {
            match self.command(&words) {
                Some(Ok(())) => checked.ours += usize::from(words.len() > 1),
                Some(Err(problem)) => {
                    checked
                        .problems
                        .push(format!("`{}`: {problem}", words.join(" ")));
                }
                None if foreign && !is_foreign(&words[0]) => {
                    checked
                        .problems
                        .push(format!("`{}`: no test knows this program", words[0]));
                }
                None => {}
            }
        }
        checked
    }

    /// Returns the errors in a command of ours; none for others.
    fn command(&self, words: &[String]) -> Option<Result<(), String>> {
        let program = words[0].rsplit('/').next().unwrap_or_default();
        let rest = &words[1..];
        if program == "cargo" {
            return match rest.first().map(String::as_str) {
                Some("xtask") => Some(self.task(&rest[1..])),
                _ => Some(self.cargo(rest)),
            };
        }
        let command = self
            .0
            .get(program)
            .filter(|_| program.starts_with("maglor"))?;
        Some(check(command, rest))
    }

    fn task(&self, words: &[String]) -> Result<(), String> {
        let Some(name) = words.first() else {
            return Ok(());
        };
        let tasks = &self.0["cargo xtask"].subcommands;
        let task = tasks.get(name).ok_or_else(|| format!("no task {name}"))?;
        let two = words.get(1).map(|second| format!("{name} {second}"));
        let suite = two.and_then(|two| self.0.get(two.as_str()));
        match (suite, self.0.get(name.as_str())) {
            (Some(suite), _) => check(suite, &words[2..]),
            (None, Some(program)) if task.passes_on => check(program, &words[1..]),
            _ => check(task, &words[1..]),
        }
    }

    /// `cargo run`, `test`, and so on: packages, tests and programs exist.
    fn cargo(&self, words: &[String]) -> Result<(), String> {
        let (own, passed) = match words.iter().position(|word| word == "--") {
            Some(at) => (&words[..at], &words[at + 1..]),
            None => (words, &[][..]),
        };
        let value = |flag: &str| {
            let at = own.iter().position(|word| word == flag)?;
            own.get(at + 1).map(String::as_str)
        };
        let root = pages::root();
        if let Some(path) = value("--path")
            && !root.join(path).join("Cargo.toml").exists()
        {
            return Err(format!("no package at {path}"));
        }
        let Some(package) = value("-p") else {
            return Ok(());
        };
        let folder = package.strip_prefix("maglor-").unwrap_or(package);
        let folder = ["crates/", ""].map(|base| root.join(format!("{base}{folder}")));
        let folder = folder
            .into_iter()
            .find(|one| one.join("Cargo.toml").exists());
        let folder = folder.ok_or_else(|| format!("no package {package}"))?;
        let exists = |base: &str, name: &str| {
            let base = folder.join(base);
            base.join(format!("{name}.rs")).exists() || base.join(name).exists()
        };
        let mut tests = value("--test").into_iter().chain(module(own));
        let folders = ["tests", "cluster/tests"];
        if let Some(test) = tests.find(|test| !folders.iter().any(|base| exists(base, test))) {
            return Err(format!("no test {test}"));
        }
        match value("--bin") {
            Some(bin) if exists("src/bin", bin) => match self.0.get(bin) {
                Some(program) => check(program, passed),
                None => Ok(()),
            },
            Some(bin) if bin != package => Err(format!("no program {bin}")),
            _ => Ok(()),
        }
    }
}

/// The module in a filter of tests, which is a file: `--test main reload::`.
fn module(words: &[String]) -> Option<&str> {
    let at = words.iter().position(|word| word == "--test")?;
    let (module, _) = words.get(at + 2)?.split_once("::")?;
    Some(module)
}

/// Whether a command accepts these arguments.
fn check(command: &Command, words: &[String]) -> Result<(), String> {
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == "--" {
            return Ok(());
        }
        if word.len() > 1 && word.starts_with('-') {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let takes = command.flags.get(name);
            let takes = takes.ok_or_else(|| format!("no flag {name}"))?;
            if *takes && value.is_none() && words.next().is_none() {
                return Ok(());
            }
            continue;
        }
        if let Some(inner) = command.subcommands.get(word) {
            let rest: Vec<_> = words.map(str::to_owned).collect();
            return check(inner, &rest);
        }
        if command.passes_on {
            return Ok(());
        }
        // `[services]` is a placeholder.
        if !command.words && !word.starts_with('[') && word != "…" {
            return Err(format!("no subcommand {word}"));
        }
    }
    Ok(())
}

fn is_foreign(word: &str) -> bool {
    FOREIGN.contains(&word) || word.ends_with("()")
}

/// The commands of a script, each as a list of words.
fn commands(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let mut commands = Vec::new();
    for line in text.lines() {
        let mut words = Vec::new();
        for word in words_of(line) {
            match word.as_str() {
                "|" | "||" | "&&" | "&" | ";" => commands.push(std::mem::take(&mut words)),
                _ => words.push(word),
            }
        }
        commands.push(words);
    }
    for words in &mut commands {
        // Redirections, and variables before a command.
        let end = words.iter().position(|word| word.starts_with('>'));
        words.truncate(end.unwrap_or(words.len()));
        let is_variable = |word: &String| {
            let name = word.split_once('=').map(|(name, _)| name);
            name.is_some_and(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        };
        let first = words.iter().position(|word| !is_variable(word));
        words.drain(..first.unwrap_or(words.len()));
        // A variable of flags, such as `$PROXIES`; `$1/key.pem` is a value.
        let is_flags = |word: &String| {
            let name = word.strip_prefix('$');
            name.is_some_and(|name| name.chars().all(|c| c.is_ascii_uppercase()))
        };
        words.retain(|word| !is_flags(word));
    }
    commands.retain(|words| !words.is_empty());
    commands
}

/// The words of a line without its comment; operators of the shell are words.
fn words_of(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut quote = None;
    let mut letters = line.chars().peekable();
    while let Some(c) = letters.next() {
        match (quote, c) {
            (Some(mark), c) if mark == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, '|' | ';' | '&') => {
                words.extend(word.take());
                let double = letters.next_if_eq(&c).is_some() && c != ';';
                words.push(c.to_string().repeat(if double { 2 } else { 1 }));
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn scripts_are_split_into_commands() {
    let script = "$ A=1 b 'c d' \\\n  -e # f\ng | h --i=\"j|k\" > l && m &\n";
    let expected = [&["b", "c d", "-e"][..], &["g"], &["h", "--i=j|k"], &["m"]];
    assert_eq!(commands(script), expected);
}

#[test]
fn wrong_command_lines_are_found() {
    let programs = Programs::read();
    for wrong in [
        "maglor checks maglor.yaml",
        "maglor stat services --windows 3s",
        "maglor identity issue --finish",
        "maglor-proxy --lissten 127.0.0.1:8080",
        "maglor-proxy sidecar --lissten 127.0.0.1:8080",
        "maglor-controller crds --applied",
        "cargo xtask comparison",
        "cargo xtask mesh --quik",
        "cargo test -p maglor-balancing",
        "cargo run -p maglor-benches --bin compare -- --quik",
        "cargo test -p maglor-proxy --test nothing",
        "cargo test -p maglor-proxy --test main nothing::",
    ] {
        assert_eq!(programs.script(wrong, true).problems.len(), 1, "{wrong}");
    }
    let right = "maglor check && maglor-proxy sidecar --probe a=tcp:1 | cargo xtask mesh --quick";
    let checked = programs.script(right, true);
    assert_eq!((checked.ours, checked.problems.len()), (3, 0));
    assert_eq!(programs.script("unheard of", true).problems.len(), 1);
    assert_eq!(programs.script("unheard of", false).problems.len(), 0);
}
