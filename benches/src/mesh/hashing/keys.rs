//! What a policy makes of keys, computed with the balancer: the balance over the endpoints, and whether a key keeps its
//! endpoint when it comes again and after another endpoint has left.

use std::collections::HashMap;

use maglor_balance::{Balancer, Endpoint, PickCtx, PolicySpec, Rng, Time, ViewParams, hash_bytes};

use crate::error::{Error, Result};
use crate::report::{Table, number};

const ENDPOINTS: [usize; 4] = [4, 10, 100, 1000];
/// As many as a table of Maglev has slots, several times.
const KEYS: u32 = 500_000;
const KEYS_QUICK: u32 = 50_000;

/// The keys of a policy with a number of endpoints; shares are between 0 and 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    policy: &'static str,
    endpoints: usize,
    /// The keys of the endpoint with the most over the mean, minus 1.
    excess: f64,
    /// The share of keys with the same endpoint the second time.
    again: f64,
    /// The share of keys that keep their endpoint after another one has left.
    kept: f64,
}

/// Computes all cells.
pub(super) fn all(policies: &[&'static str], quick: bool) -> Result<Vec<Keys>> {
    let count = if quick { KEYS_QUICK } else { KEYS };
    let mut all = Vec::new();
    for &policy in policies {
        for endpoints in ENDPOINTS {
            all.push(Keys::of(policy, endpoints, count)?);
        }
    }
    Ok(all)
}

/// Returns the balancer of a policy before the first `endpoints` addresses, without one of them.
fn balancer(policy: &str, endpoints: usize, without: Option<usize>) -> Result<Balancer> {
    let spec: std::result::Result<PolicySpec, _> = policy.parse();
    let spec = spec.map_err(|error| Error::parse("a policy", error.to_string()))?;
    let indices = (0..endpoints).filter(|index| Some(*index) != without);
    let endpoints: Vec<_> = indices.map(|index| Endpoint::new(address(index))).collect();
    Balancer::build(&spec, endpoints, &ViewParams::default(), Time::ZERO)
        .map_err(|error| Error::parse("a policy", error.to_string()))
}

fn address(index: usize) -> String {
    format!("10.0.{}.{}:8080", index / 250, index % 250 + 1)
}

/// Returns the endpoint that a request with the key goes to.
fn owner<'a>(balancer: &'a Balancer, key: u32, rng: &mut Rng) -> Option<&'a str> {
    let context = PickCtx::new(Time::ZERO).with_hash(hash_bytes(&key.to_le_bytes()));
    let index = balancer.pick(&context, rng)?;
    let endpoint = balancer.view().endpoint(index)?;
    Some(&*endpoint.key)
}

impl Keys {
    fn of(policy: &'static str, endpoints: usize, count: u32) -> Result<Self> {
        let gone = endpoints / 2;
        let before = balancer(policy, endpoints, None)?;
        let after = balancer(policy, endpoints, Some(gone))?;
        let gone = address(gone);
        let mut rng = Rng::seed(1);
        let homes: Vec<_> = (0..count)
            .map(|key| owner(&before, key, &mut rng))
            .collect();
        let mut counts = HashMap::new();
        for home in &homes {
            *counts.entry(*home).or_insert(0_u64) += 1;
        }
        let (mut again, mut staying, mut kept) = (0_u64, 0_u64, 0_u64);
        // At random, as an order has nothing to do with keys but a lot with round-robin.
        for _ in 0..count {
            let key = rng.below(count);
            let Some(home) = homes.get(key as usize) else {
                continue;
            };
            again += u64::from(owner(&before, key, &mut rng) == *home);
            if *home != Some(&*gone) {
                staying += 1;
                kept += u64::from(owner(&after, key, &mut rng) == *home);
            }
        }
        let most = counts.values().max().copied().unwrap_or_default();
        Ok(Self {
            policy,
            endpoints,
            excess: most as f64 * endpoints as f64 / f64::from(count) - 1.0,
            again: again as f64 / f64::from(count),
            kept: kept as f64 / staying.max(1) as f64,
        })
    }
}

/// Returns the raw data.
pub(super) fn csv(all: &[Keys]) -> String {
    let mut text = String::from("policy,endpoints,excess,again,kept\n");
    for one in all {
        let Keys {
            policy,
            endpoints,
            excess,
            again,
            kept,
        } = one;
        text.push_str(&format!(
            "{policy},{endpoints},{excess:.6},{again:.6},{kept:.6}\n"
        ));
    }
    text
}

/// Describes the results.
pub(super) fn text(all: &[Keys]) -> String {
    let mut table = Table::new([
        "policy",
        "endpoints",
        "busiest endpoint above the mean %",
        "same endpoint the second time %",
        "**same endpoint after another has left %**",
    ]);
    for one in all {
        table.row(vec![
            one.policy.into(),
            one.endpoints.to_string(),
            number(Some(100.0 * one.excess)),
            format!("{:.2}", 100.0 * one.again),
            format!("{:.2}", 100.0 * one.kept),
        ]);
    }
    format!(
        "### Keys\n\nBy the balancer alone, without requests in progress; policies without keys send a key anywhere. The last \
         column is of the keys whose endpoint stays.\n\n{}",
        table.markdown()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_with_hashing_and_only_with_it() {
        let of = |policy| Keys::of(policy, 100, 20_000).unwrap();
        for policy in ["maglev", "ring-hash"] {
            let one = of(policy);
            assert!(one.again == 1.0 && one.kept > 0.98, "{one:?}");
        }
        for policy in ["round-robin", "lor(choices=2)"] {
            let one = of(policy);
            assert!(one.again < 0.05 && one.kept < 0.05, "{one:?}");
        }
        let (maglev, ring) = (of("maglev"), of("ring-hash"));
        assert!(maglev.excess < ring.excess, "{maglev:?} {ring:?}");
    }
}
