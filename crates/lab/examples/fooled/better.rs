//! Alternatives to the ledger, in a separate model: one group of FIFO servers,
//! messages with a delay that are never lost. None of these is implemented in the product.
//!
//! * *prefetched*: each balancer keeps one referral in hand, so that a request waits for no answer; the ledger
//!   counts it from its assignment, and drops it after a time.
//! * *late binding*: the ledger refers only to servers with fewer requests than a limit, and keeps the other
//!   requests until one ends there.
//! * *shortest first*: a server processes the shortest of its waiting requests, assuming that it is known.
//! * *bounce by stamps*: `bounce(tries=3)` that begins with the better of two servers by the counts that their
//!   last responses carried.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use maglor_balance::Rng;

use crate::table::{head, row};

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Bounce { stamps: bool },
    LateBinding { most: u32 },
    Ledger { shortest_first: bool },
    Prefetched { expires: f64 },
}

const WAYS: [(&str, Way); 9] = [
    (
        "ledger",
        Way::Ledger {
            shortest_first: false,
        },
    ),
    (
        "ledger, shortest first",
        Way::Ledger {
            shortest_first: true,
        },
    ),
    ("prefetched, 5 ms", Way::Prefetched { expires: 5.0 }),
    ("prefetched, 50 ms", Way::Prefetched { expires: 50.0 }),
    ("late binding, 1 a server", Way::LateBinding { most: 1 }),
    ("late binding, 2 a server", Way::LateBinding { most: 2 }),
    ("late binding, 3 a server", Way::LateBinding { most: 3 }),
    ("bounce(tries=3)", Way::Bounce { stamps: false }),
    ("bounce by stamps", Way::Bounce { stamps: true }),
];

const SERVERS: u32 = 40;
const DELAY: f64 = 0.25;
const REQUESTS: u32 = 400_000;

pub(crate) fn print() {
    for (law, cv) in [("exponential", 1.0), ("lognormal, CV 3", 3.0)] {
        println!(
            "## Alternatives to the ledger, mean / 99th percentile in ms, {law} service, 40 servers\n"
        );
        let situations = [
            (20, 20.0, 0.5),
            (20, 20.0, 0.75),
            (20, 20.0, 0.9),
            (1000, 20.0, 0.9),
            (20, 2.0, 0.5),
            (20, 2.0, 0.75),
        ];
        let column =
            |(m, service, rho): &(u32, f64, f64)| format!("M = {m}, {service} ms, ρ = {rho}");
        head(
            &std::iter::once("way".to_owned())
                .chain(situations.iter().map(column))
                .collect::<Vec<_>>(),
        );
        for (name, way) in WAYS {
            let cell = |(balancers, service, rho): &(u32, f64, f64)| {
                let model = Model::new(way, *balancers, *service, *rho, cv);
                let (mean, p99) = model.run();
                format!("{mean:.2} / {p99:.0}")
            };
            row(&std::iter::once(name.to_owned())
                .chain(situations.iter().map(cell))
                .collect::<Vec<_>>());
        }
        println!();
    }
}

/// Times are in milliseconds; events are kept in whole nanoseconds.
struct Model {
    way: Way,
    service: f64,
    cv: f64,
    /// Between two requests, on average.
    gap: f64,
    now: f64,
    events: BinaryHeap<Reverse<(u64, u32, Event)>>,
    number: u32,
    servers: Vec<Server>,
    /// The loads assumed by the ledger.
    assumed: Vec<u32>,
    held: VecDeque<Request>,
    balancers: Vec<Balancer>,
    rng: Rng,
    latencies: Vec<f32>,
    arrived: u32,
}

#[derive(Default)]
struct Server {
    waiting: VecDeque<Request>,
    serving: Option<Request>,
}

struct Balancer {
    /// A prefetched referral.
    kept: Option<(u32, f64)>,
    stamps: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Request {
    born: f64,
    work: f64,
    balancer: u32,
    attempts: u32,
    best: (u32, u32),
}

#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Event {
    Arrives,
    Asked(Kept),
    Ends(u32),
    Expires(u32),
    Fetched(u32, u32),
    Lapses(u32, u64),
    Prefetch(u32),
    Reported(u32),
    Sent(Kept, u32),
    Attempts(Kept),
}

/// A request in an event, by bits, so that events have an order.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
struct Kept {
    born: u64,
    work: u64,
    balancer: u32,
    attempts: u32,
    best: (u32, u32),
}

impl From<Request> for Kept {
    fn from(request: Request) -> Self {
        Self {
            born: request.born.to_bits(),
            work: request.work.to_bits(),
            balancer: request.balancer,
            attempts: request.attempts,
            best: request.best,
        }
    }
}

impl From<Kept> for Request {
    fn from(kept: Kept) -> Self {
        Self {
            born: f64::from_bits(kept.born),
            work: f64::from_bits(kept.work),
            balancer: kept.balancer,
            attempts: kept.attempts,
            best: kept.best,
        }
    }
}

impl Model {
    fn new(way: Way, balancers: u32, service: f64, rho: f64, cv: f64) -> Self {
        let balancer = |_| Balancer {
            kept: None,
            stamps: vec![0; SERVERS as usize],
        };
        Self {
            way,
            service,
            cv,
            gap: service / rho / f64::from(SERVERS),
            now: 0.0,
            events: BinaryHeap::new(),
            number: 0,
            servers: (0..SERVERS).map(|_| Server::default()).collect(),
            assumed: vec![0; SERVERS as usize],
            held: VecDeque::new(),
            balancers: (0..balancers).map(balancer).collect(),
            rng: Rng::seed(3),
            latencies: Vec::new(),
            arrived: 0,
        }
    }

    fn run(mut self) -> (f64, f64) {
        self.after(0.0, Event::Arrives);
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            self.now = at as f64 / 1e6;
            self.happens(event);
        }
        let counted = &mut self.latencies[REQUESTS as usize / 10..];
        let mean = counted.iter().map(|one| f64::from(*one)).sum::<f64>() / counted.len() as f64;
        counted.sort_by(f32::total_cmp);
        (mean, f64::from(counted[counted.len() * 99 / 100]))
    }

    fn after(&mut self, delay: f64, event: Event) {
        self.number += 1;
        let at = ((self.now + delay) * 1e6) as u64;
        self.events.push(Reverse((at, self.number, event)));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrives => self.arrives(),
            Event::Asked(kept) => self.asked(kept.into()),
            Event::Ends(server) => self.ends(server),
            Event::Expires(server) | Event::Reported(server) => {
                self.assumed[server as usize] = self.assumed[server as usize].saturating_sub(1);
                if let Some(request) = self.held.pop_front() {
                    self.asked(request);
                }
            }
            Event::Fetched(balancer, server) => {
                let kept = self.balancers[balancer as usize]
                    .kept
                    .replace((server, self.now));
                if let Some((unused, _)) = kept {
                    self.after(DELAY, Event::Expires(unused));
                }
                if let Way::Prefetched { expires } = self.way {
                    let since = self.now.to_bits();
                    self.after(expires, Event::Lapses(balancer, since));
                }
            }
            Event::Lapses(balancer, since) => {
                let kept = &mut self.balancers[balancer as usize].kept;
                if let Some((server, _)) = kept.take_if(|(_, at)| at.to_bits() == since) {
                    self.after(DELAY, Event::Expires(server));
                }
            }
            Event::Prefetch(balancer) => {
                let server = self.least();
                self.assumed[server as usize] += 1;
                self.after(DELAY, Event::Fetched(balancer, server));
            }
            Event::Sent(kept, server) => self.reaches(kept.into(), server),
            Event::Attempts(kept) => self.attempts(kept.into()),
        }
    }

    fn arrives(&mut self) {
        self.arrived += 1;
        if self.arrived < REQUESTS {
            let gap = -(1.0 - self.rng.unit()).ln() * self.gap;
            self.after(gap, Event::Arrives);
        }
        let balancer = self.rng.below(self.balancers.len() as u32);
        let request = Request {
            born: self.now,
            work: self.work(),
            balancer,
            attempts: 0,
            best: (0, u32::MAX),
        };
        match self.way {
            Way::Bounce { .. } => self.attempts(request),
            Way::LateBinding { .. } | Way::Ledger { .. } => {
                self.after(DELAY, Event::Asked(request.into()));
            }
            Way::Prefetched { .. } => {
                let kept = self.balancers[balancer as usize].kept.take();
                self.after(DELAY, Event::Prefetch(balancer));
                match kept {
                    Some((server, _)) => self.reaches(request, server),
                    None => self.after(DELAY, Event::Asked(request.into())),
                }
            }
        }
    }

    fn work(&mut self) -> f64 {
        if self.cv <= 1.0 {
            return -(1.0 - self.rng.unit()).ln() * self.service;
        }
        let variance = (1.0 + self.cv * self.cv).ln();
        let normal = (-2.0 * (1.0 - self.rng.unit()).ln()).sqrt();
        let normal = normal * (std::f64::consts::TAU * self.rng.unit()).cos();
        (variance.sqrt() * normal - variance / 2.0).exp() * self.service
    }

    /// The server with the least assumed load.
    fn least(&mut self) -> u32 {
        let (mut best, mut ties) = (0, 0);
        for server in 0..SERVERS {
            let (own, least) = (self.assumed[server as usize], self.assumed[best as usize]);
            if ties == 0 || own < least {
                (best, ties) = (server, 1);
            } else if own == least {
                ties += 1;
                if self.rng.below(ties) == 0 {
                    best = server;
                }
            }
        }
        best
    }

    /// A query has reached the ledger.
    fn asked(&mut self, request: Request) {
        let server = self.least();
        if let Way::LateBinding { most } = self.way
            && self.assumed[server as usize] >= most
        {
            return self.held.push_back(request);
        }
        self.assumed[server as usize] += 1;
        self.after(DELAY, Event::Sent(request.into(), server));
    }

    fn attempts(&mut self, mut request: Request) {
        let mut server = self.rng.below(SERVERS);
        if self.way == (Way::Bounce { stamps: true }) && request.attempts == 0 {
            let other = self.rng.below(SERVERS);
            let stamps = &self.balancers[request.balancer as usize].stamps;
            if stamps[other as usize] < stamps[server as usize] {
                server = other;
            }
        }
        request.attempts += 1;
        let queue = &self.servers[server as usize];
        let load = queue.waiting.len() as u32 + u32::from(queue.serving.is_some());
        let limit = if request.attempts < 3 {
            0
        } else {
            request.best.1
        };
        if load <= limit {
            return self.reaches(request, server);
        }
        if load < request.best.1 {
            request.best = (server, load);
        }
        if request.attempts == 3 {
            let best = request.best.0;
            return self.after(2.0 * DELAY, Event::Sent(request.into(), best));
        }
        self.after(2.0 * DELAY, Event::Attempts(request.into()));
    }

    fn reaches(&mut self, request: Request, server: u32) {
        let queue = &mut self.servers[server as usize];
        queue.waiting.push_back(request);
        if queue.serving.is_none() {
            self.serve(server);
        }
    }

    fn serve(&mut self, server: u32) {
        let queue = &mut self.servers[server as usize];
        let shortest = self.way
            == (Way::Ledger {
                shortest_first: true,
            });
        let works = queue.waiting.iter().enumerate();
        let first = works
            .min_by(|a, b| a.1.work.total_cmp(&b.1.work))
            .map(|(at, _)| at);
        let at = if shortest { first.unwrap_or(0) } else { 0 };
        queue.serving = queue.waiting.remove(at);
        if let Some(request) = queue.serving {
            self.after(request.work, Event::Ends(server));
        }
    }

    fn ends(&mut self, server: u32) {
        let queue = &mut self.servers[server as usize];
        let left = queue.waiting.len() as u32;
        if let Some(request) = queue.serving.take() {
            self.latencies.push((self.now - request.born) as f32);
            self.balancers[request.balancer as usize].stamps[server as usize] = left;
        }
        self.after(DELAY, Event::Reported(server));
        self.serve(server);
    }
}
