//! One run: the state of the system and the loop that processes its events.
//!
//! There are three kinds of events, the earliest first: a server finishes a request, a user's
//! request arrives, another event occurs (a message, a change). For a local policy the third kind
//! is empty and a request costs one pick, one draw of each distribution and two settings of a
//! clock.

mod change;
mod guarded;
mod held;
mod place;
mod tier;

use maglor_balance::{Rng, Time};

use super::arrivals::Source;
use super::distribution::Sampler;
use super::jobs::{Job, Jobs, NONE};
use super::nodes::Nodes;
use super::outcome::Run;
use super::post::Post;
use super::recorder::Recorder;
use super::scenario::Scenario;
use super::server::Server;
use super::tournament::{NEVER, Tournament};
use change::Changes;
pub(super) use guarded::Attempt;
use held::Places;
use tier::Tier;

/// The state of a run; see the module's documentation.
#[derive(Debug)]
pub(super) struct Cluster<'s> {
    scenario: &'s Scenario,
    now: u64,
    chance: Chance,
    source: Source,
    work: Sampler,
    /// The mean work in nanoseconds.
    mean_work: f64,
    tiers: Vec<Tier>,
    /// The servers of all tiers, one tier after the other.
    servers: Vec<Server>,
    departures: Tournament,
    jobs: Jobs,
    post: Post,
    changes: Changes,
    recorder: Recorder,
    counts: Counts,
    /// Whether responses are evaluated by guards.
    guarded: bool,
    /// Balancers to be notified by a server; kept to reuse its memory.
    notified: Vec<u32>,
    held: Places,
    /// The latency that proxies add to a user's request, in nanoseconds.
    penalty: u64,
}

/// A generator for each kind of randomness, so that policies see the same arrivals and work.
#[derive(Debug)]
struct Chance {
    arrivals: Rng,
    network: Rng,
    policy: Rng,
    work: Rng,
}

#[derive(Debug, Default)]
struct Counts {
    /// The number of finished users' requests.
    done: u64,
    placed: u64,
    messages: u64,
    fallbacks: u64,
    busy_while_idle: u64,
    retries: u64,
    ejections: u64,
    failed: u64,
    /// Attempts by server, in the second half of the run.
    attempts: Vec<u64>,
    /// The attempts at the first service, by node of the balancer and of the server.
    by_node: Vec<Vec<u64>>,
    timeline: Vec<(f64, u64)>,
}

impl Chance {
    fn new(seed: u64, run: u32) -> Self {
        let of = |kind: u64| {
            // Far apart for neighbouring seeds, runs and kinds; the generator mixes it further.
            let number = (u64::from(run) << 8 | kind).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Rng::seed(seed.rotate_left(32) ^ number)
        };
        Self {
            arrivals: of(1),
            network: of(2),
            policy: of(3),
            work: of(4),
        }
    }
}

impl<'s> Cluster<'s> {
    /// Creates the initial, empty system. The scenario must have been validated.
    pub(super) fn new(scenario: &'s Scenario, run: u32) -> Self {
        let mut chance = Chance::new(scenario.seed, run);
        let services = scenario.graph.services();
        let tiers: Vec<Tier> = (0..services)
            .map(|service| Tier::new(scenario, service, &mut chance.network))
            .collect();
        let servers: Vec<Server> = (0..services)
            .flat_map(|_| 0..scenario.servers)
            .map(|server| Server::new(scenario.discipline, scenario.speed(server)))
            .collect();
        let source = Source::new(
            scenario.arrivals,
            scenario.balancers,
            scenario.rate(),
            &mut chance.arrivals,
        );
        let nodes = scenario.nodes.as_ref().map_or(0, Nodes::count);
        let penalty = scenario.proxies.map_or(0, |proxies| nanos(proxies.penalty));
        Self {
            scenario,
            now: 0,
            chance,
            source,
            work: Sampler::from(scenario.service),
            mean_work: nanos(scenario.service_time) as f64,
            tiers,
            departures: Tournament::new(servers.len()),
            counts: Counts {
                attempts: vec![0; servers.len()],
                by_node: vec![vec![0; nodes]; nodes],
                ..Counts::default()
            },
            servers,
            jobs: Jobs::default(),
            post: Post::new(nanos(scenario.network.delay)),
            changes: Changes::new(scenario),
            recorder: Recorder::new(scenario.requests),
            guarded: scenario.is_guarded(),
            notified: Vec::new(),
            held: Places::default(),
            // Each service is called once for each request of a user.
            penalty: penalty * u64::from(services),
        }
    }

    pub(super) fn run(mut self) -> Run {
        self.start_guards();
        while self.counts.done < self.scenario.requests {
            self.step();
        }
        Run {
            steady: self.recorder.finish(),
            placed: self.counts.placed,
            messages: self.counts.messages,
            fallbacks: self.counts.fallbacks,
            busy_while_idle: self.counts.busy_while_idle,
            retries: self.counts.retries,
            ejections: self.counts.ejections,
            failed: self.counts.failed,
            attempts: self.counts.attempts,
            by_node: self.counts.by_node,
            timeline: self.counts.timeline,
        }
    }

    #[inline]
    fn step(&mut self) {
        let (departs, server) = self.departures.first();
        let arrives = self.source.next_at();
        let other = self.post.next_at().min(self.changes.next_at());
        if departs <= arrives && departs <= other {
            self.now = departs;
            self.depart(server);
        } else if arrives <= other {
            self.now = arrives;
            self.arrive();
        } else {
            self.happen(other);
        }
    }

    #[cold]
    fn happen(&mut self, at: u64) {
        self.now = at;
        if self.changes.next_at() <= at {
            self.change();
        } else if let Some(mail) = self.post.take() {
            self.deliver(mail);
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    #[inline]
    fn arrive(&mut self) {
        let balancer = self.source.take(&mut self.chance.arrivals);
        self.request(0, balancer, NONE);
    }

    /// Starts a server's next own call; `false` if there is none left.
    fn call(&mut self, at: u32) -> bool {
        let job = self.jobs.get_mut(at);
        let tier = &self.tiers[usize::from(job.service)];
        let Some(&service) = tier.calls.get(usize::from(job.next_call)) else {
            return false;
        };
        job.next_call += 1;
        let (own, caller) = (job.service, job.server);
        let now = Time::from_nanos(self.now);
        // With its first call the request leaves the server's queue.
        let waits = job.admitted.as_mut().filter(|_| job.next_call == 1);
        if let Some(report) = waits.map(|admitted| admitted.wait(now)) {
            self.announce(own, caller, report);
        }
        self.request(service, caller, at);
        true
    }

    #[inline]
    fn request(&mut self, service: u16, caller: u32, parent: u32) {
        let balancer = match self.tiers[usize::from(service)].proxies {
            None => caller,
            Some(proxies) => self.chance.policy.below(proxies.get()),
        };
        let work = self.work.draw(&mut self.chance.work) * self.mean_work;
        let job = self.jobs.add(Job {
            born: self.now,
            work,
            outstanding: None,
            admitted: None,
            deadline: NEVER,
            parent,
            balancer,
            server: NONE,
            service,
            fails: false,
            next_call: 0,
            generation: 0,
        });
        self.counts.placed += 1;
        if self.guarded && !self.take_on(job) {
            return self.fail(job);
        }
        self.place(job);
    }

    /// Puts a request into a server's queue.
    #[inline]
    fn enter(&mut self, at: u32, server: u32) {
        let spoilt = if self.guarded {
            Some(self.spoil(at, server))
        } else {
            None
        };
        let job = self.jobs.get_mut(at);
        job.server = server;
        let tier = &mut self.tiers[usize::from(job.service)];
        let place = tier.first + server;
        if self.counts.done * 2 >= self.scenario.requests {
            self.counts.attempts[place as usize] += 1;
            if job.service == 0
                && let Some(nodes) = &self.scenario.nodes
            {
                let (from, to) = (nodes.of_balancer(job.balancer), nodes.of_server(server));
                self.counts.by_node[from][to] += 1;
            }
        }
        let queue = &mut self.servers[place as usize];
        if queue.len() == 0 {
            tier.idle -= 1;
        } else if tier.idle > 0 {
            self.counts.busy_while_idle += 1;
        }
        if queue.push(self.now, spoilt.unwrap_or(job.work), at) {
            self.departures.set(place, queue.next_at());
        }
    }

    #[inline]
    fn depart(&mut self, place: u32) {
        let queue = &mut self.servers[place as usize];
        let job = queue.pop(self.now);
        self.departures.set(place, queue.next_at());
        let empty = queue.len() == 0;
        let Some(job) = job else { return };
        if empty {
            self.tiers[usize::from(self.jobs.get(job).service)].idle += 1;
        }
        self.proceed(job);
    }

    /// Continues after a request's own work, or one of its calls, has ended.
    #[inline]
    fn proceed(&mut self, mut at: u32) {
        while at != NONE && !self.call(at) {
            at = self.complete(at);
        }
    }

    /// Ends a request, or an attempt of one; returns its parent, if it has ended.
    #[inline]
    fn complete(&mut self, at: u32) -> u32 {
        if self.guarded && !self.judge(at) {
            return NONE;
        }
        self.release_server(at);
        let job = self.jobs.get(at);
        let (parent, born, fails) = (job.parent, job.born, job.fails);
        self.jobs.remove(at);
        if parent == NONE {
            self.counts.done += 1;
            self.counts.failed += u64::from(fails);
            let latency = self.now - born + self.penalty;
            self.recorder.record(latency, fails);
            if !self.scenario.timeline.is_zero() {
                self.note_time(latency);
            }
        }
        parent
    }

    #[cold]
    fn note_time(&mut self, latency: u64) {
        let interval = nanos(self.scenario.timeline);
        let at = usize::try_from(self.now / interval).unwrap_or(usize::MAX);
        let timeline = &mut self.counts.timeline;
        if at >= timeline.len() {
            timeline.resize(at + 1, (0.0, 0));
        }
        timeline[at].0 += latency as f64;
        timeline[at].1 += 1;
    }

    /// Records the end of the response in the balancer's statistics and at the server's proxy.
    #[inline]
    fn release_server(&mut self, at: u32) {
        let now = self.time();
        let job = self.jobs.get_mut(at);
        if job.fails {
            return self.release_failed(at);
        }
        let (service, server) = (job.service, job.server);
        let admitted = job.admitted.take();
        if let Some(outstanding) = job.outstanding.take() {
            if self.guarded {
                let usual = &self.tiers[usize::from(service)].usual[job.balancer as usize];
                usual.observe(now.saturating_since(outstanding.began()));
            }
            if self.tiers[usize::from(service)].uses_latency {
                outstanding.finish(now);
            } else {
                drop(outstanding);
            }
        }
        if let Some(report) = admitted.and_then(|admitted| admitted.finish(now)) {
            self.announce(service, server, report);
        }
    }

    /// Abandons a request for which there is no server.
    fn fail(&mut self, at: u32) {
        if self.guarded {
            self.let_go(at, None);
        }
        let parent = self.jobs.get(at).parent;
        self.jobs.remove(at);
        if parent == NONE {
            self.counts.failed += 1;
            self.counts.done += 1;
        } else {
            self.proceed(parent);
        }
    }
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
