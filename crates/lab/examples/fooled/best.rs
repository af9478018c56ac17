//! The policies compared with one central queue: mean and 99th percentile.

use maglor_lab::des::Scenario;

use crate::table::{base, head, row, simulate};

const POLICIES: [&str; 5] = [
    "lor(choices=2)",
    "bounce(tries=3)",
    "prequal",
    "join-idle-queue(boards=1)",
    "ledger(group=40)",
];

pub(crate) fn print() {
    println!("## Mean / 99th percentile in ms, N = 40, Ts = 20 ms\n");
    let loads = [0.5, 0.75, 0.9];
    let columns = loads.iter().map(|rho| format!("ρ = {rho}"));
    let names = ["policy", "M"].map(str::to_owned);
    head(&names.into_iter().chain(columns).collect::<Vec<_>>());
    let print = |name: String, balancers: u32, policy: &str| {
        let scenario = |rho: &f64| Scenario {
            balancers,
            rho: *rho,
            requests: 200_000,
            ..base(policy)
        };
        let scenarios: Vec<Scenario> = loads.iter().map(scenario).collect();
        let cells = simulate(&scenarios);
        let cells = cells
            .iter()
            .map(|one| format!("{:.2} / {:.1}", one.mean_ms.value, one.p99_ms.value));
        row(&[name, balancers.to_string()]
            .into_iter()
            .chain(cells)
            .collect::<Vec<_>>());
    };
    for balancers in [20, 100, 1000] {
        for policy in POLICIES {
            print(format!("`{policy}`"), balancers, policy);
        }
    }
    print(
        "central join-the-shortest-queue".to_owned(),
        1,
        "lor(choices=all)",
    );
    let cells = loads.map(|rho| {
        let (mean, p99) = many_servers(40, rho, 20.0);
        format!("{mean:.2} / {p99:.1}")
    });
    row(&["M/M/40 (exact)".to_owned(), "–".to_owned()]
        .into_iter()
        .chain(cells)
        .collect::<Vec<_>>());
    println!();
}

/// Mean and 99th percentile of the time in M/M/c, by Erlang's C.
fn many_servers(c: u32, rho: f64, service: f64) -> (f64, f64) {
    let load = rho * f64::from(c);
    // Erlang's B by its recursion, then C.
    let blocked = (1..=c).fold(1.0, |b, k| load * b / (f64::from(k) + load * b));
    let waits = blocked / (1.0 - rho * (1.0 - blocked));
    let (serve, drain) = (1.0 / service, f64::from(c) * (1.0 - rho) / service);
    // P(T > t) of the sum of an exponential service and, with probability `waits`, an exponential wait.
    let above = |t: f64| {
        let (own, both) = ((-serve * t).exp(), (-drain * t).exp());
        own + waits * serve / (drain - serve) * (own - both)
    };
    let (mut low, mut high) = (0.0, 100.0 * service);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if above(middle) > 0.01 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (service + waits / drain, low)
}
