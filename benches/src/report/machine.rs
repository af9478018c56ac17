//! Machine and versions of a comparison.

use std::fs;
use std::time::SystemTime;

use super::Table;
use crate::child;
use crate::peer::Peer;

/// The machine, the versions of tools, and the date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Today (UTC), `YYYY-MM-DD`.
    pub date: String,
    /// Names and values, in the order in which they are printed.
    pub(crate) facts: Vec<(String, String)>,
}

impl Machine {
    /// Collects the facts.
    pub(crate) fn look(peers: &[Peer]) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let command = |program: &str, arguments: &[&str]| {
            child::output(program, arguments)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let cpuinfo = text("/proc/cpuinfo");
        let cpus = cpuinfo
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count();
        let mut facts = vec![
            (
                "processor".into(),
                format!("{} × {}", cpus, field(&cpuinfo, "model name")),
            ),
            ("memory".into(), field(&text("/proc/meminfo"), "MemTotal")),
            (
                "kernel".into(),
                text("/proc/sys/kernel/osrelease").trim().to_owned(),
            ),
            ("system".into(), os_name(&text("/etc/os-release"))),
            ("rustc".into(), command("rustc", &["--version"])),
            (
                "commit".into(),
                command("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
            ),
        ];
        facts.extend(
            peers
                .iter()
                .map(|peer| (peer.subject.to_string(), peer.version.clone())),
        );
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let date = now.split('T').next().unwrap_or_default().to_owned();
        Self { date, facts }
    }

    /// Returns the facts, and others about the run, as a table.
    pub(crate) fn table(&self, others: &[(&str, String)]) -> String {
        let mut table = Table::new(["what", "here"]);
        for (name, value) in &self.facts {
            table.row(vec![name.clone(), value.clone()]);
        }
        for (name, value) in others {
            table.row(vec![(*name).to_owned(), value.clone()]);
        }
        table.markdown()
    }
}

fn field(text: &str, name: &str) -> String {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.split_once(':'));
    value.map_or_else(|| "unknown".into(), |(_, value)| value.trim().to_owned())
}

fn os_name(text: &str) -> String {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    value.unwrap_or("unknown").trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        assert_eq!(field("a: 1\nmodel name\t: X 2\n", "model name"), "X 2");
        assert_eq!(field("", "model name"), "unknown");
        assert_eq!(os_name("A=b\nPRETTY_NAME=\"Debian 12\"\n"), "Debian 12");
    }
}
