//! Creates a [`PolicySpec`] from a name and parameters.

use std::str::FromStr;

use super::forms::{Form, NAMES};
use super::parameters::Parameters;
use super::spelling::{nearest, shorten};
use super::{PolicySpec, SpecError, bounds, notation, positive};
use crate::policy::fallback::Fallback;
use crate::policy::maglev::MaglevParams;
use crate::policy::peak_ewma::PeakEwmaParams;
use crate::policy::probe::Probe;
use crate::policy::ring_hash::RingHashParams;
use crate::policy::subset::SubsetParams;

/// Policies that exist only in the simulator, each with the nearest policy of the proxy.
const COMPARISONS: &[(&str, &str)] = &[
    ("jiq", "ledger(group=40)"),
    ("join-idle-queue", "ledger(group=40)"),
    ("prequal", "probe(choices=2)"),
];

/// Names of our policies in other programs, each with our name.
const ALIASES: &[(&str, &str)] = &[
    ("alsq", "a-lsq"),
    ("consistent", "maglev"),
    ("consistent-hash", "maglev"),
    ("ewma", "peak-ewma"),
    ("first", "round-robin"),
    ("hash", "maglev"),
    ("header", "maglev"),
    ("hrw", "maglev"),
    ("ip-hash", "maglev"),
    ("iphash", "maglev"),
    ("ketama", "ring-hash"),
    ("least-conn", "lor(choices=all)"),
    ("least-connection", "lor(choices=all)"),
    ("least-connections", "lor(choices=all)"),
    ("least-latency", "peak-ewma"),
    ("least-outstanding", "lor(choices=all)"),
    ("least-request", "lor(choices=2)"),
    ("least-requests", "lor(choices=2)"),
    ("least-response-time", "peak-ewma"),
    ("least-time", "peak-ewma"),
    ("leastconn", "lor(choices=all)"),
    ("leasttime", "peak-ewma"),
    ("lsq", "a-lsq"),
    ("p2c", "lor(choices=2)"),
    ("power-of-two", "lor(choices=2)"),
    ("power-of-two-choices", "lor(choices=2)"),
    ("random-choose", "random"),
    ("rr", "round-robin"),
    ("roundrobin", "round-robin"),
    ("source", "maglev"),
    ("source-ip", "maglev"),
    ("static-rr", "round-robin"),
    ("uri", "maglev"),
    ("weighted-least-request", "lor(choices=2)"),
    ("weighted-round-robin", "round-robin"),
    ("wrr", "round-robin"),
];

impl FromStr for PolicySpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, given) = notation::named(text)?;
        Self::from_parts(name, given)
    }
}

impl PolicySpec {
    /// Creates a policy from a name and parameters as written, either in the string form or as a mapping.
    pub(super) fn from_parts(name: &str, given: Vec<(String, String)>) -> Result<Self, SpecError> {
        if Form::of(name).is_none() {
            return Err(unknown(name));
        }
        let spec = match name {
            "a-lsq" => a_lsq(given)?,
            "bounce" => {
                let p = Parameters::new("bounce", &["tries"], given)?;
                let attempts = p.positive("tries", bounds::ATTEMPTS, positive(3))?;
                Self::Bounce { attempts }
            }
            "ledger" => ledger(given)?,
            "lor" => {
                let choices = Parameters::new("lor", &["choices"], given)?.choices()?;
                Self::LeastOutstanding { choices }
            }
            "maglev" => maglev(given)?,
            "peak-ewma" => peak_ewma(given)?,
            "probe" => {
                let p = Parameters::new("probe", &["choices"], given)?;
                let choices = p.positive("choices", Probe::MAX_CHOICES, positive(2))?;
                Self::Probe { choices }
            }
            "random" => {
                Parameters::new("random", &[], given)?;
                Self::Random
            }
            "ring-hash" => ring_hash(given)?,
            "round-robin" => {
                Parameters::new("round-robin", &[], given)?;
                Self::RoundRobin
            }
            "subset" => subset(given)?,
            _ => return Err(unknown(name)),
        };
        spec.validate()?;
        Ok(spec)
    }
}

fn a_lsq(given: Vec<(String, String)>) -> Result<PolicySpec, SpecError> {
    let p = Parameters::new("a-lsq", &["choices", "overhead"], given)?;
    Ok(PolicySpec::ALsq {
        choices: p.choices()?,
        overhead: p.positive("overhead", bounds::OVERHEAD, positive(10))?,
    })
}

fn ledger(given: Vec<(String, String)>) -> Result<PolicySpec, SpecError> {
    let p = Parameters::new("ledger", &["group", "fallback"], given)?;
    Ok(PolicySpec::Ledger {
        group: p.positive("group", bounds::GROUP, positive(40))?,
        fallback: p.fallback(Fallback::Bounce)?,
    })
}

fn maglev(given: Vec<(String, String)>) -> Result<PolicySpec, SpecError> {
    let p = Parameters::new("maglev", &["table_size", "hash_balance_factor"], given)?;
    let table_size = p.number("table_size", 2..=MaglevParams::MAX_TABLE_SIZE)?;
    Ok(PolicySpec::Maglev(MaglevParams {
        table_size: table_size.unwrap_or(MaglevParams::default().table_size),
        hash_balance_factor: p.number("hash_balance_factor", 100..=100_000)?,
    }))
}

fn peak_ewma(given: Vec<(String, String)>) -> Result<PolicySpec, SpecError> {
    let p = Parameters::new(
        "peak-ewma",
        &["choices", "decay_ms", "default_rtt_ms"],
        given,
    )?;
    let default = PeakEwmaParams::default();
    Ok(PolicySpec::PeakEwma(PeakEwmaParams {
        choices: p.positive("choices", PeakEwmaParams::MAX_CHOICES, default.choices)?,
        decay: p.millis("decay_ms")?.unwrap_or(default.decay),
        default_rtt: p.millis("default_rtt_ms")?.unwrap_or(default.default_rtt),
    }))
}

fn ring_hash(given: Vec<(String, String)>) -> Result<PolicySpec, SpecError> {
    let p = Parameters::new("ring-hash", &["min", "max", "hash_balance_factor"], given)?;
    let size = 1..=RingHashParams::LIMIT;
    let default = RingHashParams::default();
    Ok(PolicySpec::RingHash(RingHashParams {
        min: p.number("min", size.clone())?.unwrap_or(default.min),
        max: p.number("max", size)?.unwrap_or(default.max),
        hash_balance_factor: p.number("hash_balance_factor", 100..=100_000)?,
    }))
}

fn subset(given: Vec<(String, String)>) -> Result<PolicySpec, SpecError> {
    let p = Parameters::new("subset", &["size", "client", "choices"], given)?;
    let (size, client, choices) = (
        p.number("size", 1..=SubsetParams::MAX_SIZE)?,
        p.number("client", 0..=SubsetParams::MAX_CLIENT)?,
        p.number("choices", 1..=SubsetParams::MAX_CHOICES)?,
    );
    let default = SubsetParams::default();
    Ok(PolicySpec::Subset(SubsetParams {
        size: size.unwrap_or(default.size),
        client: client.unwrap_or(default.client),
        choices: choices.unwrap_or(default.choices),
    }))
}

fn unknown(name: &str) -> SpecError {
    let plain = name.to_ascii_lowercase().replace('_', "-");
    let comparison = COMPARISONS.iter().find(|(known, _)| *known == plain);
    if let Some((_, instead)) = comparison {
        let name = shorten(name);
        return SpecError::ComparisonOnly { name, instead };
    }
    let alias = ALIASES
        .iter()
        .find(|(alias, _)| *alias == plain)
        .map(|(_, ours)| *ours);
    let suggestion = alias.or_else(|| nearest(&plain, &NAMES));
    SpecError::UnknownPolicy {
        name: shorten(name),
        suggestion,
    }
}
