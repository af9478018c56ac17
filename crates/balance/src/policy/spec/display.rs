//! The canonical form of a [`PolicySpec`]: always with the parameters that characterize the policy, and with others if
//! they differ from their defaults.

use std::fmt;

use super::PolicySpec;
use crate::policy::peak_ewma::PeakEwmaParams;
use crate::policy::ring_hash::RingHashParams;
use crate::policy::subset::SubsetParams;

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = Vec::new();
        let mut put = |name: &str, value: &dyn fmt::Display| list.push(format!("{name}={value}"));
        match self {
            Self::ALsq { choices, overhead } => {
                put("choices", choices);
                put("overhead", overhead);
            }
            Self::Bounce { attempts } => put("tries", attempts),
            Self::LeastOutstanding { choices } => put("choices", choices),
            Self::Ledger { group, fallback } => {
                put("group", group);
                put("fallback", fallback);
            }
            Self::Maglev(p) => {
                put("table_size", &p.table_size);
                if let Some(percent) = p.hash_balance_factor {
                    put("hash_balance_factor", &percent);
                }
            }
            Self::PeakEwma(p) => peak_ewma(p, &mut put),
            Self::Probe { choices } => put("choices", choices),
            Self::Random | Self::RoundRobin => {}
            Self::RingHash(p) => {
                put("min", &p.min);
                if p.max != RingHashParams::LIMIT {
                    put("max", &p.max);
                }
                if let Some(percent) = p.hash_balance_factor {
                    put("hash_balance_factor", &percent);
                }
            }
            Self::Subset(p) => subset(p, &mut put),
        }
        if list.is_empty() {
            f.write_str(self.name())
        } else {
            write!(f, "{}({})", self.name(), list.join(","))
        }
    }
}

fn peak_ewma(p: &PeakEwmaParams, put: &mut dyn FnMut(&str, &dyn fmt::Display)) {
    let default = PeakEwmaParams::default();
    if p.choices != default.choices {
        put("choices", &p.choices);
    }
    if p.decay != default.decay {
        put("decay_ms", &p.decay.as_millis());
    }
    if p.default_rtt != default.default_rtt {
        put("default_rtt_ms", &p.default_rtt.as_millis());
    }
}

fn subset(p: &SubsetParams, put: &mut dyn FnMut(&str, &dyn fmt::Display)) {
    let default = SubsetParams::default();
    put("size", &p.size);
    if p.client != default.client {
        put("client", &p.client);
    }
    if p.choices != default.choices {
        put("choices", &p.choices);
    }
}
