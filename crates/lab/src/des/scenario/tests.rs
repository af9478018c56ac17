use super::*;

#[test]
fn the_default_makes_sense_and_nonsense_is_refused_in_one_line() {
    let base = Scenario::default();
    assert_eq!(base.check(), Ok(()));
    let change = |change| Disturbance {
        at: Duration::ZERO,
        change,
    };
    let with = |policy: &str, last| Scenario {
        policy: policy.parse().unwrap(),
        disturbances: vec![change(last)],
        ..Scenario::default()
    };
    for (policy, groups) in [("ledger(group=20)", 2), ("join-idle-queue(boards=4)", 4)] {
        let good = with(policy, Change::LedgerDies(groups - 1));
        assert_eq!(good.check(), Ok(()));
        let error = with(policy, Change::LedgerRestarts(groups)).check();
        let error = error.unwrap_err().to_string();
        let last = groups - 1;
        assert_eq!(
            error,
            format!("there is no ledger or board {groups}; the last one is {last}")
        );
    }
    let error = with("lor(choices=2)", Change::LedgerDies(0)).check();
    assert_eq!(
        error.unwrap_err().to_string(),
        "there is no ledger or board under the policy lor(choices=2)"
    );
    let edits: [fn(&mut Scenario); 26] = [
        |s| {
            s.faults = Some(Faults {
                servers: 41,
                share: 0.5,
                work: 1.0,
                status: 500,
            });
        },
        |s| s.guards = Guards::retrying(21),
        |s| s.guards.max_requests = Some(0),
        |s| s.rho = 1.0,
        |s| s.rho = f64::NAN,
        |s| s.rho = 0.0,
        |s| s.rho = 1e-12,
        |s| s.rho = 1e-300,
        |s| (s.balancers, s.servers) = (100_000, 100_000),
        |s| (s.balancers, s.servers) = (20_000, 5000),
        |s| (s.graph, s.servers) = (Graph::Chain { services: 64 }, 2000),
        |s| s.balancers = 0,
        |s| s.servers = 0,
        |s| s.requests = 1,
        |s| s.runs = 1,
        |s| s.speeds = vec![],
        |s| s.speeds = vec![1.0, 0.0],
        |s| s.network.loss = 1.0,
        |s| s.network.report_loss = 1.1,
        |s| s.silent = 41,
        |s| s.weights = vec![],
        |s| s.weights = vec![1, 0],
        |s| s.view_lag = Duration::from_secs(4000),
        |s| {
            s.faults = Some(Faults {
                servers: 1,
                share: 0.5,
                work: 1.0,
                status: 200,
            });
        },
        |s| s.service_time = Duration::ZERO,
        |s| s.graph = Graph::Chain { services: 1 },
    ];
    refused(&edits);
}

#[test]
fn nodes_and_slow_start_are_refused_where_they_do_nothing() {
    let edits: [fn(&mut Scenario); 10] = [
        |s| s.nodes = Some(Nodes::even(1)),
        |s| s.nodes = Some(Nodes::even(41)),
        |s| {
            s.nodes = Some(Nodes {
                callers: vec![0, 0],
                slack: 0.2,
            });
        },
        |s| {
            s.nodes = Some(Nodes {
                slack: 1.1,
                ..Nodes::even(3)
            });
        },
        |s| (s.nodes, s.weights) = (Some(Nodes::even(3)), vec![1, 2]),
        |s| {
            s.nodes = Some(Nodes::even(3));
            s.policy = "join-idle-queue".parse().unwrap();
        },
        |s| {
            s.nodes = Some(Nodes::even(3));
            s.proxies = Some(Proxies {
                instances: 2,
                penalty: Duration::ZERO,
            });
        },
        |s| s.slow_start = Some(SlowStart::default()),
        |s| {
            s.slow_start = Some(SlowStart {
                window: Duration::ZERO,
                ..SlowStart::default()
            });
        },
        |s| {
            s.disturbances = vec![Disturbance {
                at: Duration::ZERO,
                change: Change::Return(40),
            }];
        },
    ];
    refused(&edits);
}

fn refused(edits: &[fn(&mut Scenario)]) {
    for edit in edits {
        let mut scenario = Scenario::default();
        edit(&mut scenario);
        let error = scenario.check().unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
    }
}
