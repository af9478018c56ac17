//! The adaptive concurrency limit before a server of limited concurrency: the experiment `overload` of
//! benches/README.md, with `concurrency_limit` in place of a queue in the proxy.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use maglor_balance::Rng;
use maglor_testkit::{Answer, RawHttp1, Upstream, seed};

use crate::support::Web;

const PLACES: usize = 20;
const SERVICE: Duration = Duration::from_millis(100);
/// Maximum number of concurrent requests of the generator: more than the limit reaches.
const CLIENTS: usize = 150;

/// Starts a server that processes [`PLACES`] requests at a time, in the order of their arrival.
fn server() -> Upstream {
    let upstream = Upstream::start("server");
    let free = Mutex::new([Instant::now(); PLACES]);
    upstream.set_answer(move |_| {
        let mut free = free.lock().unwrap();
        let place = free.iter_mut().min().unwrap();
        let now = Instant::now();
        *place = now.max(*place) + SERVICE;
        Some(Answer::text("well").after(*place - now))
    });
    upstream
}

#[derive(Default)]
struct Outcome {
    offered: u32,
    good: u32,
    mean: Duration,
}

/// Sends Poisson arrivals at this share of the server's capacity.
fn offer(address: SocketAddr, load: f64, time: Duration, rng: &mut Rng) -> Outcome {
    let rate = load * PLACES as f64 / SERVICE.as_secs_f64();
    let (due, waiting) = channel::<Instant>();
    let (done, results) = channel();
    let waiting = Mutex::new(waiting);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let (waiting, done) = (&waiting, done.clone());
            scope.spawn(move || {
                let mut client = RawHttp1::connect(address);
                while let Some(at) = next(waiting) {
                    let good = client.get("/").status == 200;
                    done.send(good.then(|| at.elapsed())).unwrap();
                }
            });
        }
        let start = Instant::now();
        let mut at = start;
        while at < start + time {
            at += Duration::from_secs_f64(-(1.0 - rng.unit()).ln() / rate);
            thread::sleep(at.saturating_duration_since(Instant::now()));
            due.send(at).unwrap();
        }
        drop(due);
    });
    drop(done);
    let mut outcome = Outcome::default();
    let mut sum = Duration::ZERO;
    for took in results {
        outcome.offered += 1;
        outcome.good += u32::from(took.is_some());
        sum += took.unwrap_or_default();
    }
    outcome.mean = sum / outcome.good.max(1);
    outcome
}

fn next(due: &Mutex<Receiver<Instant>>) -> Option<Instant> {
    due.lock().unwrap().recv().ok()
}

#[test]
fn an_overloaded_server_does_nearly_all_that_it_can_and_soon() {
    let (mut rng, server) = (Rng::seed(seed()), server());
    let proxy = Web::to([server.address()])
        .cluster("concurrency_limit: {}, limits: {max_pending_requests: 0}, outlier_ejection: {enabled: false}")
        .start();
    let mut offer = |load: f64, seconds: u64| {
        let address = proxy.listener("web");
        let outcome = offer(address, load, Duration::from_secs(seconds), &mut rng);
        let capacity = PLACES as f64 / SERVICE.as_secs_f64() * seconds as f64;
        let (offered, good) = (f64::from(outcome.offered), f64::from(outcome.good));
        println!(
            "{load} of the capacity offered: {:.3} answered, {:.3} of the capacity, {:.0} ms",
            good / offered,
            good / capacity,
            outcome.mean.as_secs_f64() * 1e3
        );
        (good / offered, good / capacity, outcome.mean)
    };
    let (answered, _, mean) = offer(0.8, 6);
    assert!(answered > 0.97 && mean < Duration::from_millis(150));
    // The baseline is measured while the limit settles. Programs beside the test disturb both for a while.
    offer(1.2, 6);
    let settled = (0..4).any(|_| {
        let (_, goodput, mean) = offer(1.2, 8);
        goodput > 0.85 && mean < Duration::from_millis(250)
    });
    assert!(settled);
}
