//! Machine and versions of a comparison.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::child;
use crate::peer::Peer;

/// The machine, the versions of tools, and the date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Today (UTC), `YYYY-MM-DD`.
    pub date: String,
    /// Names and values, in the order in which they are printed.
    pub(crate) facts: Vec<(String, String)>,
}

impl Machine {
    /// Collects the facts.
    pub fn look(peers: &[Peer]) -> Self {
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
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        Self {
            date: date(seconds / 86_400),
            facts,
        }
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

/// Returns the civil date of a day since 1970, by counting in 400-year eras that begin on 1 March.
fn date(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(19_782), "2024-02-29");
        assert_eq!(date(19_783), "2024-03-01");
        assert_eq!(date(20_453), "2025-12-31");
    }

    #[test]
    fn fields() {
        assert_eq!(field("a: 1\nmodel name\t: X 2\n", "model name"), "X 2");
        assert_eq!(field("", "model name"), "unknown");
        assert_eq!(os_name("A=b\nPRETTY_NAME=\"Debian 12\"\n"), "Debian 12");
    }
}
