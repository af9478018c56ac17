//! Shares by weight without queueing at servers, so that they depend only on the policy.

use maglor_lab::des::{Discipline, Outcome, Scenario};

use crate::table::{base, head, row, simulate};

const POLICIES: [&str; 6] = [
    "lor(choices=2)",
    "lor(choices=all)",
    "a-lsq",
    "bounce(tries=3)",
    "probe(choices=2)",
    "ledger(group=40)",
];

const LOADS: [f64; 6] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

pub(crate) fn print() {
    println!("## Weights: the greatest relative deviation of a server's share, in percent\n");
    println!(
        "By requests in progress (erlang). One balancer, exponential service of 20 ms, four runs; 500 000 requests for \
         99:1, of which the light server has 2500 in the half that counts (standard deviation 2 %), 100 000 for the \
         others.\n"
    );
    let names = ["policy", "weights"].map(str::to_owned);
    let loads = LOADS.iter().map(ToString::to_string);
    head(&names.into_iter().chain(loads).collect::<Vec<_>>());
    for policy in POLICIES {
        for weights in [&[99, 1][..], &[10, 1], &[3, 2, 1]] {
            let scenarios: Vec<Scenario> = LOADS
                .iter()
                .map(|erlang| scenario(policy, weights, *erlang))
                .collect();
            let cells = simulate(&scenarios);
            let cells = cells.iter().map(|one| deviation(one, weights));
            let shown: Vec<String> = weights.iter().map(ToString::to_string).collect();
            let names = [format!("`{policy}`"), shown.join(":")];
            row(&names.into_iter().chain(cells).collect::<Vec<_>>());
        }
    }
    println!();
}

fn scenario(policy: &str, weights: &[u32], erlang: f64) -> Scenario {
    let all = if weights == [99, 1] { 500_000 } else { 100_000 };
    Scenario {
        balancers: 1,
        servers: weights.len() as u32,
        weights: weights.to_vec(),
        discipline: Discipline::Parallel,
        rho: erlang / weights.len() as f64,
        requests: all / 4,
        ..base(policy)
    }
}

fn deviation(outcome: &Outcome, weights: &[u32]) -> String {
    let sum = f64::from(weights.iter().sum::<u32>());
    let of = |(share, weight): (&f64, &u32)| (share / (f64::from(*weight) / sum) - 1.0).abs();
    let most = outcome.shares.iter().zip(weights).map(of);
    format!("{:.1}", 100.0 * most.fold(0.0, f64::max))
}
