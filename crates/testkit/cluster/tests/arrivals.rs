//! An open loop: Poisson arrivals at several doors, whose latency counts from when a request was due.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use maglor_balance::Rng;
use maglor_testkit::cluster::Cluster;

use crate::support::round_trip::round_trip;

/// Connections to a door: more than requests that are ever under way there.
const CONNECTIONS: usize = 24;

/// The result of a request.
#[derive(Clone, Debug)]
struct Sample {
    due: Instant,
    latency: Duration,
    outcome: Result<u16, String>,
}

#[derive(Debug)]
struct Shared {
    /// Requests a second.
    rate: AtomicU32,
    stop: AtomicBool,
    samples: Mutex<Vec<Sample>>,
}

/// Requests until they are stopped.
#[derive(Debug)]
pub(crate) struct Arrivals {
    shared: Arc<Shared>,
    began: Instant,
    /// Closed when all threads have ended.
    ended: mpsc::Receiver<()>,
}

impl Arrivals {
    /// Begins to send to random ones of the doors.
    pub(crate) fn start(cluster: &Cluster, doors: &[Ipv4Addr], rate: u32, seed: u64) -> Self {
        let (alive, ended) = mpsc::channel();
        let shared = Arc::new(Shared {
            rate: AtomicU32::new(rate),
            stop: AtomicBool::new(false),
            samples: Mutex::default(),
        });
        let (own, doors) = (Arc::clone(&shared), doors.to_vec());
        // Its threads inherit the network.
        let started = cluster.in_network(move || {
            let doors = doors.into_iter().map(|door| {
                let (due, queue) = mpsc::channel();
                let queue = Arc::new(Mutex::new(queue));
                for _ in 0..CONNECTIONS {
                    let (queue, own, alive) = (Arc::clone(&queue), Arc::clone(&own), alive.clone());
                    let door = SocketAddr::from((door, 9080));
                    std::thread::spawn(move || {
                        let _alive = alive;
                        connection(door, &queue, &own);
                    });
                }
                due
            });
            let doors: Vec<_> = doors.collect();
            std::thread::spawn(move || pace(&doors, &own, Rng::seed(seed)));
        });
        started.unwrap();
        Self {
            shared,
            began: Instant::now(),
            ended,
        }
    }

    pub(crate) fn at_rate(&self, rate: u32) {
        self.shared.rate.store(rate, Ordering::Relaxed);
    }

    /// Waits for this time; returns the mean latency of the requests in it, in milliseconds.
    pub(crate) fn during(&self, what: &str, time: Duration) -> f64 {
        let from = Instant::now();
        std::thread::sleep(time);
        let to = Instant::now();
        let all = self.latencies(from, to);
        assert!(!all.is_empty(), "{what}: nothing was answered");
        let samples = self.shared.samples.lock().unwrap();
        let own = samples.iter().filter(|one| one.due >= from && one.due < to);
        let failed = own.filter(|one| one.outcome != Ok(200)).count();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let p99 = all[all.len() * 99 / 100];
        println!(
            "{what}: {} requests in {time:?}, mean {mean:.2} ms, p99 {p99:.1} ms; {failed} failed",
            all.len()
        );
        mean
    }

    /// Latencies of requests that were due between two times and were answered, in milliseconds, the shortest first.
    pub(crate) fn latencies(&self, from: Instant, to: Instant) -> Vec<f64> {
        let samples = self.shared.samples.lock().unwrap();
        let own = samples.iter().filter(|one| one.due >= from && one.due < to);
        let own = own.filter(|one| one.outcome == Ok(200));
        let mut all: Vec<_> = own.map(|one| one.latency.as_secs_f64() * 1000.0).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// How many requests were sent, and what became of those that failed, with when they were due.
    pub(crate) fn stop(self) -> (usize, Vec<String>) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Prints nothing; it ends with the last thread.
        let _ = self.ended.recv();
        let samples = self.shared.samples.lock().unwrap();
        let failed = samples.iter().filter_map(|one| {
            let at = one.due.saturating_duration_since(self.began);
            let after = one.latency;
            match &one.outcome {
                Ok(200) => None,
                Ok(status) => Some(format!("at {at:?}: status {status} after {after:?}")),
                Err(error) => Some(format!("at {at:?}: {error} after {after:?}")),
            }
        });
        (samples.len(), failed.collect())
    }
}

fn pace(doors: &[mpsc::Sender<Instant>], shared: &Shared, mut rng: Rng) {
    let mut due = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        let rate = f64::from(shared.rate.load(Ordering::Relaxed));
        // 1 − u is above 0, so its logarithm is finite.
        due += Duration::from_secs_f64(-(1.0 - rng.unit()).ln() / rate);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let door = rng.below(u32::try_from(doors.len()).unwrap());
        doors[door as usize].send(due).unwrap();
    }
}

fn connection(door: SocketAddr, queue: &Mutex<mpsc::Receiver<Instant>>, shared: &Shared) {
    let mut stream = None;
    loop {
        // One of them waits for the next request, the others for it.
        let due = queue.lock().unwrap().recv();
        let Ok(due) = due else { return };
        let outcome = round_trip(&mut stream, door);
        if outcome.is_err() {
            stream = None;
        }
        shared.samples.lock().unwrap().push(Sample {
            due,
            latency: due.elapsed(),
            outcome,
        });
    }
}
