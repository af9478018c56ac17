//! The load generator: an open loop with Poisson arrivals, or users who wait for their responses.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use maglor_balance::Rng;
use maglor_testkit::load_generator::Clock;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::users::Users;
use crate::error::{Doing, Error, Result};

/// The time after the last request in which responses may arrive; requests without one then have
/// failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time limit of users for all of their requests.
const LONGEST: Duration = Duration::from_secs(300);

/// The result of one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// When it was due, from the start of the run; for users, when it was sent.
    pub(crate) due: Duration,
    /// By how much the generator was late.
    pub(crate) lag: Duration,
    /// How long it waited for a free user.
    pub(crate) waited: Duration,
    /// The time from when it was due to the last byte of the response.
    pub(crate) latency: Duration,
    /// The time taken by the queues of instances alone.
    pub(crate) exact: Duration,
    /// The status; 0 without a response.
    pub(crate) status: u16,
}

/// The destination of requests.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The addresses. Each request takes a random one, so that each has a separate Poisson stream.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) host: String,
    /// The paths, one after the other.
    pub(crate) paths: Vec<String>,
    /// The number of users, each with one request at a time; `None` for an open loop.
    pub(crate) users: Option<u32>,
}

struct Generator {
    clock: Clock,
    users: Users,
    target: Target,
    began: Instant,
    samples: RefCell<Vec<Sample>>,
}

impl Generator {
    fn new(target: &Target) -> Result<Rc<Self>> {
        Ok(Rc::new(Self {
            clock: Clock::new().doing("start the pacing timer")?,
            users: Users::new(target.users),
            target: target.clone(),
            began: Instant::now(),
            samples: RefCell::default(),
        }))
    }

    async fn ask(&self, due: Duration, address: SocketAddr, turn: usize) {
        let ready = self.began.elapsed();
        let user = self.users.take().await;
        let sent = self.began.elapsed();
        let paths = &self.target.paths;
        let path = paths
            .get(turn % paths.len().max(1))
            .map_or("/", String::as_str);
        let result = user
            .caller()
            .get(address, &self.target.host, path, None)
            .await;
        self.samples.borrow_mut().push(Sample {
            due,
            lag: ready.saturating_sub(due),
            waited: sent.saturating_sub(ready),
            latency: self.began.elapsed().saturating_sub(due),
            exact: result
                .as_ref()
                .map_or(Duration::ZERO, |answer| answer.exact),
            status: result.map_or(0, |answer| answer.status),
        });
    }
}

/// Sends `rate` requests per second for `length`, and executes `at` at its moment. Samples are in
/// the order of their due times.
pub(crate) async fn open(
    target: &Target,
    rate: f64,
    length: Duration,
    seed: u64,
    (moment, at): (Duration, impl AsyncFnOnce() -> Result<()>),
) -> Result<Vec<Sample>> {
    let generator = Generator::new(target)?;
    let mut rng = Rng::seed(seed);
    let mut under_way = JoinSet::new();
    let own = Rc::clone(&generator);
    let watch = async move {
        let due = own.began + moment;
        own.clock
            .sleep_until(due)
            .await
            .doing("wait for the warm-up")?;
        at().await
    };
    let pace = async {
        let (mut due, mut turn) = (Duration::ZERO, 0);
        loop {
            // 1 − u is above 0, so its logarithm is finite.
            due += Duration::from_secs_f64(-(1.0 - rng.unit()).ln() / rate);
            if due >= length {
                break;
            }
            let choice = u32::try_from(target.addresses.len()).unwrap_or(u32::MAX);
            let Some(&address) = target.addresses.get(rng.below(choice) as usize) else {
                break;
            };
            let until = generator.began + due;
            generator
                .clock
                .sleep_until(until)
                .await
                .doing("wait for a request's time")?;
            let own = Rc::clone(&generator);
            under_way.spawn_local(async move { own.ask(due, address, turn).await });
            turn += 1;
            // Finished ones are not kept.
            while under_way.try_join_next().is_some() {}
        }
        Ok::<_, Error>(turn)
    };
    let (sent, watched) = tokio::join!(pace, watch);
    watched?;
    let sent: usize = sent?;
    let ended = async { while under_way.join_next().await.is_some() {} };
    let _ = timeout(PATIENCE, ended).await;
    under_way.shutdown().await;
    generator.users.close();
    let mut samples = generator.samples.take();
    // Requests without a response are failures at the end of the run.
    samples.resize_with(sent.max(samples.len()), || Sample {
        due: length,
        lag: Duration::ZERO,
        waited: Duration::ZERO,
        latency: PATIENCE,
        exact: Duration::ZERO,
        status: 0,
    });
    samples.sort_by_key(|sample| sample.due);
    Ok(samples)
}

/// Lets `users` send `each` requests, one after another, all users at the same time; each user
/// keeps to one of the addresses. Returns the samples and how long it took.
pub(super) async fn users(
    target: &Target,
    users: u32,
    each: u32,
) -> Result<(Vec<Sample>, Duration)> {
    let generator = Generator::new(target)?;
    let mut at_work = JoinSet::new();
    for user in 0..users {
        let own = Rc::clone(&generator);
        let addresses = &target.addresses;
        let Some(&address) = addresses.get(user as usize % addresses.len().max(1)) else {
            break;
        };
        at_work.spawn_local(async move {
            for _ in 0..each {
                own.ask(own.began.elapsed(), address, 0).await;
            }
        });
    }
    let ended = async { while at_work.join_next().await.is_some() {} };
    let _ = timeout(LONGEST, ended).await;
    let took = generator.began.elapsed();
    at_work.shutdown().await;
    generator.users.close();
    let mut samples = generator.samples.take();
    // Requests without a response, or never sent.
    samples.resize_with((users * each) as usize, || Sample {
        due: took,
        lag: Duration::ZERO,
        waited: Duration::ZERO,
        latency: took,
        exact: Duration::ZERO,
        status: 0,
    });
    Ok((samples, took))
}
