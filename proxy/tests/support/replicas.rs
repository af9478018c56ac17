//! Replicas of a service with their inbound proxies, and many independent balancers in front of them: all are
//! clusters of one outbound proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use maglor_balance::Rng;
use maglor_testkit::{Answer, Proxy, RawHttp1, Upstream};

use super::{reload, start};

/// Parameters of a fixture.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) servers: usize,
    pub(crate) balancers: usize,
    pub(crate) policy: String,
    /// Mean service time of a request, exponentially distributed. A server handles one request at a time.
    pub(crate) service: Duration,
    /// Weights of the servers; 1 if empty.
    pub(crate) weights: Vec<u32>,
    /// Settings of the balancers' clusters.
    pub(crate) cluster: String,
    /// Settings of all clusters of servers, including those of inbound proxies.
    pub(crate) everywhere: String,
    pub(crate) seed: u64,
}

/// Replicas and their balancers.
pub(crate) struct Replicas {
    pub(crate) plan: Plan,
    pub(crate) applications: Vec<Upstream>,
    /// `None` while it is stopped.
    inbound: Vec<Mutex<Option<Proxy>>>,
    addresses: Vec<SocketAddr>,
    pub(crate) outbound: Proxy,
}

/// Outcome of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) requests: u32,
    pub(crate) errors: u32,
    /// Mean latency of all, including errors, from the time when they were due.
    pub(crate) mean: Duration,
}

impl Replicas {
    /// Starts all servers, which report to ledgers.
    pub(crate) fn start(plan: Plan) -> Self {
        let applications: Vec<Upstream> = (0..plan.servers)
            .map(|at| Upstream::start(&format!("server-{at}")))
            .collect();
        let alone = applications.iter().map(|one| start(&inbound(0, one, "")));
        let inbound: Vec<Proxy> = alone.collect();
        let addresses: Vec<_> = inbound.iter().map(|one| one.listener("web")).collect();
        let all: Vec<usize> = (0..plan.servers).collect();
        let outbound = start(&outbound(&plan, &addresses, &all));
        let replicas = Self {
            plan,
            applications,
            inbound: inbound
                .into_iter()
                .map(|one| Mutex::new(Some(one)))
                .collect(),
            addresses,
            outbound,
        };
        for at in 0..replicas.plan.servers {
            replicas.serve(at);
            replicas.know(at, &all);
        }
        // The listeners have their ports from now on, so later reloads change only the clusters. A changed listener closes
        // its idle connections, on which a client may just be sending.
        replicas.balance_over(&all);
        replicas
    }

    /// Makes a server handle requests one after another, each for its service time.
    pub(crate) fn serve(&self, at: usize) {
        let service = self.plan.service;
        let state = Mutex::new((
            Rng::seed(self.plan.seed ^ (at as u64 + 1) << 32),
            Instant::now(),
        ));
        self.applications[at].set_answer(move |_| {
            let mut state = state.lock().unwrap();
            let time = service.mul_f64(-(1.0 - state.0.unit()).ln());
            let now = Instant::now();
            state.1 = state.1.max(now) + time;
            Some(Answer::text("well").after(state.1 - now))
        });
    }

    /// Configures the inbound proxy of a server with these members; it reports to the ledger.
    pub(crate) fn know(&self, at: usize, members: &[usize]) {
        let config = self.reporting(at, members);
        self.with_inbound(at, |proxy| update(proxy, &config));
    }

    /// Makes the inbound proxy of a server report to no ledger.
    pub(crate) fn silence(&self, at: usize) {
        let config = inbound(self.addresses[at].port(), &self.applications[at], "");
        self.with_inbound(at, |proxy| update(proxy, &config));
    }

    /// Kills the inbound proxy of a server with all its state.
    pub(crate) fn kill(&self, at: usize) {
        drop(self.inbound[at].lock().unwrap().take());
    }

    /// Runs a function with an inbound proxy that is running.
    pub(crate) fn with_inbound<T>(&self, at: usize, act: impl FnOnce(&Proxy) -> T) -> Option<T> {
        self.inbound[at].lock().unwrap().as_ref().map(act)
    }

    /// Restarts the inbound proxy of a server at its address.
    pub(crate) fn restart(&self, at: usize, members: &[usize]) {
        let config = self.reporting(at, members);
        *self.inbound[at].lock().unwrap() = Some(start(&config));
    }

    /// Configures all balancers with these members.
    pub(crate) fn balance_over(&self, members: &[usize]) {
        let config = outbound(&self.plan, &self.addresses, members);
        let fixed = self.plan.balancers;
        let config = (0..fixed).fold(config, |config, at| {
            let address = self.outbound.listener(&format!("b{at}"));
            let any = format!("name: b{at}, address: \"127.0.0.1:0\"");
            config.replace(&any, &format!("name: b{at}, address: \"{address}\""))
        });
        update(&self.outbound, &config);
    }

    fn reporting(&self, at: usize, members: &[usize]) -> String {
        let own = self.addresses[at];
        let reports = format!("cluster: all, endpoint: \"{own}\"");
        let yaml = inbound(own.port(), &self.applications[at], &reports);
        let all = cluster(&self.plan, &self.addresses, members, "all");
        format!("{yaml}{all}")
    }

    /// Returns the server that hosts the ledger, by the numbers of referrals.
    pub(crate) fn host(&self) -> Option<usize> {
        let asked = |proxy: &Proxy| proxy.metric("maglor_exchange_referrals_total", &[]);
        let referrals =
            (0..self.plan.servers).map(|at| self.with_inbound(at, asked).unwrap_or(0.0));
        let most = referrals.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        most.filter(|(_, count)| *count > 0.0).map(|(at, _)| at)
    }

    /// Sends requests at `rate` a second for `time`, each by a random balancer.
    pub(crate) fn load(&self, rate: f64, time: Duration, seed: u64) -> Outcome {
        let (done, results) = channel();
        thread::scope(|scope| {
            let balancers: Vec<_> = (0..self.plan.balancers)
                .map(|at| {
                    let address = self.outbound.listener(&format!("b{at}"));
                    let (sender, due) = channel::<Instant>();
                    let due = Arc::new(Mutex::new(due));
                    for _ in 0..CONNECTIONS {
                        let (due, done) = (Arc::clone(&due), done.clone());
                        scope.spawn(move || client(address, &due, &done));
                    }
                    sender
                })
                .collect();
            let mut rng = Rng::seed(seed);
            let start = Instant::now();
            let mut at = start;
            while at < start + time {
                at += Duration::from_secs_f64(-(1.0 - rng.unit()).ln() / rate);
                thread::sleep(at.saturating_duration_since(Instant::now()));
                let balancer = rng.below(balancers.len() as u32) as usize;
                balancers[balancer].send(at).unwrap();
            }
        });
        drop(done);
        let mut outcome = Outcome::default();
        let mut sum = Duration::ZERO;
        for (took, good) in results {
            outcome.requests += 1;
            outcome.errors += u32::from(!good);
            sum += took;
        }
        outcome.mean = sum / outcome.requests.max(1);
        outcome
    }
}

/// Maximum number of requests in progress at a balancer.
const CONNECTIONS: usize = 16;

type Due = Mutex<std::sync::mpsc::Receiver<Instant>>;

fn client(address: SocketAddr, due: &Due, done: &Sender<(Duration, bool)>) {
    // A connection that sends nothing is closed after `header_timeout`, so none is opened before it is needed.
    let mut client = None;
    loop {
        let Ok(at) = due.lock().unwrap().recv() else {
            return;
        };
        let client = client.get_or_insert_with(|| RawHttp1::connect(address));
        let good = client.get("/").status == 200;
        let _ = done.send((at.elapsed(), good));
    }
}

/// Applies a configuration unless it is in force already.
fn update(proxy: &Proxy, config: &str) {
    let known = std::fs::read_to_string(proxy.config_file());
    if known.ok().as_deref() != Some(config) {
        reload(proxy, config);
    }
}

fn cluster(plan: &Plan, addresses: &[SocketAddr], members: &[usize], name: &str) -> String {
    let endpoint = |at: &usize| {
        let weight = plan.weights.get(*at).copied().unwrap_or(1);
        format!("{{address: \"{}\", weight: {weight}}}", addresses[*at])
    };
    let endpoints: Vec<_> = members.iter().map(endpoint).collect();
    let settings = match name {
        "all" => "",
        _ => &plan.cluster,
    };
    format!(
        "- {{name: {name}, policy: '{}'{settings}{}, endpoints: [{}]}}\n",
        plan.policy,
        plan.everywhere,
        endpoints.join(", ")
    )
}

fn inbound(port: u16, application: &Upstream, reports: &str) -> String {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    format!(
        "admin: {{address: \"127.0.0.1:0\"}}\nlisteners:\n- name: web\n  address: {address}\n  \
         http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: application}}]}}], \
         load_reports: {{{reports}}}}}\n\
         clusters:\n- {{name: application, endpoints: [\"{}\"], outlier_ejection: {{enabled: false}}}}\n",
        application.address()
    )
}

fn outbound(plan: &Plan, addresses: &[SocketAddr], members: &[usize]) -> String {
    let mut text = "admin: {address: \"127.0.0.1:0\"}\nlisteners:\n".to_owned();
    for at in 0..plan.balancers {
        text.push_str(&format!(
            "- {{name: b{at}, address: \"127.0.0.1:0\", http: {{virtual_hosts: \
             [{{domains: ['*'], routes: [{{cluster: b{at}}}]}}]}}}}\n"
        ));
    }
    text.push_str("clusters:\n");
    for at in 0..plan.balancers {
        text.push_str(&cluster(plan, addresses, members, &format!("b{at}")));
    }
    text
}
