//! From text to [`Spec`]: the grammar `name [ "(" [ parameter "=" value { "," … } ] ")" ]`, with
//! spaces allowed anywhere between, and suggestions for misspelt words.

use std::str::FromStr;

use super::parameters::Parameters;
use super::{Spec, SpecError};
use crate::policy::Choices;
use crate::policy::maglev::MaglevParams;
use crate::policy::peak_ewma::PeakEwmaParams;
use crate::policy::ring_hash::RingHashParams;

/// The policies that can be built.
pub(super) const NAMES: &[&str] = &[
    "lor",
    "maglev",
    "peak-ewma",
    "random",
    "ring-hash",
    "round-robin",
];

/// Collaborative policies of the contract that are yet to come.
const NOT_BUILT: &[&str] = &[
    "a-lsq",
    "bounce",
    "join-idle-queue",
    "ledger",
    "prequal",
    "probe",
];

/// What others call our policies.
const ALIASES: &[(&str, &str)] = &[
    ("ewma", "peak-ewma"),
    ("ketama", "ring-hash"),
    ("least-conn", "lor"),
    ("least-connections", "lor"),
    ("least-request", "lor"),
    ("leastconn", "lor"),
    ("p2c", "lor"),
    ("rr", "round-robin"),
    ("roundrobin", "round-robin"),
    ("wrr", "round-robin"),
];

/// Longest part of a text that an error quotes, in characters.
const QUOTED: usize = 60;

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let syntax = |reason| SpecError::Syntax {
            text: shorten(text),
            reason,
        };
        let trimmed = text.trim();
        let (name, list) = match trimmed.split_once('(') {
            None if trimmed.contains(')') => return Err(syntax("`)` without `(`")),
            None => (trimmed, ""),
            Some((name, rest)) => {
                let list = rest
                    .strip_suffix(')')
                    .ok_or_else(|| syntax("`)` is missing at the end"))?;
                (name.trim_end(), list)
            }
        };
        if name.is_empty() {
            return Err(syntax("the name is missing"));
        }
        if list.contains(['(', ')']) {
            return Err(syntax("parentheses inside the parameters"));
        }
        let mut given = Vec::new();
        for part in list.split(',').map(str::trim) {
            if part.is_empty() && list.trim().is_empty() {
                continue;
            }
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| syntax("a parameter without `=`"))?;
            given.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        Self::from_parts(name, given)
    }
}

impl Spec {
    /// From a name and parameters as written, whichever form they were written in.
    pub(super) fn from_parts(name: &str, given: Vec<(String, String)>) -> Result<Self, SpecError> {
        let spec = match name {
            "lor" => lor(given)?,
            "maglev" => maglev(given)?,
            "peak-ewma" => peak_ewma(given)?,
            "random" => {
                Parameters::new("random", &[], given)?;
                Self::Random
            }
            "ring-hash" => ring_hash(given)?,
            "round-robin" => {
                Parameters::new("round-robin", &[], given)?;
                Self::RoundRobin
            }
            _ => return Err(unknown(name)),
        };
        spec.validate()?;
        Ok(spec)
    }
}

fn lor(given: Vec<(String, String)>) -> Result<Spec, SpecError> {
    let p = Parameters::new("lor", &["choices"], given)?;
    if p.text("choices") == Some("all") {
        return Ok(Spec::LeastOutstanding {
            choices: Choices::All,
        });
    }
    if let Some(text) = p.text("choices")
        && text.parse::<u32>().is_err()
    {
        let valid = format!("1-{} or all", Choices::MAX);
        return Err(p.check().invalid(
            "choices",
            text,
            "is neither a whole number nor `all`",
            valid,
        ));
    }
    let choices = p.choices(Choices::MAX)?.map_or(Choices::TWO, Choices::Some);
    Ok(Spec::LeastOutstanding { choices })
}

fn maglev(given: Vec<(String, String)>) -> Result<Spec, SpecError> {
    let p = Parameters::new("maglev", &["table_size", "hash_balance_factor"], given)?;
    let table_size = p.number("table_size", 2..=MaglevParams::MAX_TABLE_SIZE)?;
    Ok(Spec::Maglev(MaglevParams {
        table_size: table_size.unwrap_or(MaglevParams::default().table_size),
        hash_balance_factor: p.number("hash_balance_factor", 100..=100_000)?,
    }))
}

fn peak_ewma(given: Vec<(String, String)>) -> Result<Spec, SpecError> {
    let p = Parameters::new(
        "peak-ewma",
        &["choices", "decay_ms", "default_rtt_ms"],
        given,
    )?;
    let default = PeakEwmaParams::default();
    Ok(Spec::PeakEwma(PeakEwmaParams {
        choices: p
            .choices(PeakEwmaParams::MAX_CHOICES)?
            .unwrap_or(default.choices),
        decay: p.millis("decay_ms")?.unwrap_or(default.decay),
        default_rtt: p.millis("default_rtt_ms")?.unwrap_or(default.default_rtt),
    }))
}

fn ring_hash(given: Vec<(String, String)>) -> Result<Spec, SpecError> {
    let p = Parameters::new("ring-hash", &["min", "max", "hash_balance_factor"], given)?;
    let size = 1..=RingHashParams::LIMIT;
    let default = RingHashParams::default();
    Ok(Spec::RingHash(RingHashParams {
        min: p.number("min", size.clone())?.unwrap_or(default.min),
        max: p.number("max", size)?.unwrap_or(default.max),
        hash_balance_factor: p.number("hash_balance_factor", 100..=100_000)?,
    }))
}

fn unknown(name: &str) -> SpecError {
    if let Some(name) = NOT_BUILT.iter().find(|known| **known == name) {
        return SpecError::NotBuilt { name };
    }
    let plain = name.to_ascii_lowercase().replace('_', "-");
    let alias = ALIASES
        .iter()
        .find(|(alias, _)| *alias == plain)
        .map(|(_, ours)| *ours);
    let suggestion = alias
        .or_else(|| nearest(&plain, NAMES))
        .or_else(|| nearest(&plain, NOT_BUILT));
    SpecError::UnknownPolicy {
        name: shorten(name),
        suggestion,
    }
}

/// The word that takes the fewest edits, if they are few for its length.
pub(super) fn nearest(word: &str, known: &[&'static str]) -> Option<&'static str> {
    // Longer texts are near to nothing, and must not cost quadratic time.
    if word.len() > 32 {
        return None;
    }
    let (edits, best) = known
        .iter()
        .map(|k| (edits(word, k), *k))
        .min_by_key(|(edits, _)| *edits)?;
    let allowed = if best.len() <= 4 { 1 } else { best.len() / 3 };
    (edits <= allowed).then_some(best)
}

/// Levenshtein's distance between words: insertions, deletions and substitutions of characters.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// At most 60 characters of what was written, for quoting in an error.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
