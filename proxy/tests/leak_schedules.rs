//! Random schedules of clients, servers, reloads and drains: afterwards the proxies hold the same resources as
//! before.
//!
//! A schedule is drawn from a seed: some clients of HTTP/1.1, HTTP/2 and the mesh transport, what each sends
//! and when, how it reads and how it disconnects. The servers answer early, late, in parts or not at all; a
//! relay between all parts delays, stops and resets connections. Meanwhile the configuration changes (limits,
//! queues, timeouts, a listener that is added and removed) and the inbound proxy is drained and replaced. When
//! all clients have disconnected, requests in progress, places in queues, connections, tasks, descriptors and
//! memory must return to their earlier values.
//!
//! `MAGLOR_SCHEDULES=10000` sets the number of schedules; `SEED=N` repeats a run. Timing depends on the
//! machine: a seed repeats what is sent, not the order in which threads run. `MAGLOR_PROXY=FILE` tests that
//! binary.

mod clients;
mod held;
mod mesh;
mod relay;
mod schedule;

use std::time::Instant;

use maglor_balance::Rng;
use maglor_testkit::seed;
use mesh::Mesh;
use schedule::Schedule;

/// Number of schedules that run at the same time.
const BATCH: usize = 100;
/// Number of schedules in a run without `MAGLOR_SCHEDULES`.
const FEW: usize = 200;

/// Runs schedules concurrently; the error lists resources that were not released.
fn run(mesh: &mut Mesh, schedules: &[Schedule], rng: &mut Rng) -> Result<(), String> {
    let clients = clients::start(schedules, mesh.addresses());
    mesh.disturb(rng);
    clients.join().expect("clients do not fail");
    mesh.settle()
}

/// Returns the smallest set of schedules that fails again, each time with new proxies.
fn shrink(mut failing: Vec<Schedule>) -> Vec<Schedule> {
    let fails = |half: &[Schedule]| {
        let mut rng = Rng::seed(half[0].seed);
        run(&mut Mesh::start(), half, &mut rng).is_err()
    };
    while failing.len() > 1 {
        let second = failing.split_off(failing.len() / 2);
        if fails(&second) {
            failing = second;
        } else if !fails(&failing) {
            failing.extend(second);
            break;
        }
    }
    failing
}

#[test]
fn what_random_schedules_take_returns() {
    let wanted = std::env::var("MAGLOR_SCHEDULES").ok();
    let wanted = wanted.map_or(FEW, |number| number.parse().expect("a number"));
    let mut rng = Rng::seed(seed());
    let mut mesh = Mesh::start();
    let started = Instant::now();
    let (mut done, mut clients) = (0, 0);
    while done < wanted {
        let batch: Vec<Schedule> = (0..BATCH.min(wanted - done))
            .map(|_| Schedule::draw(rng.next_u64()))
            .collect();
        if let Err(held) = run(&mut mesh, &batch, &mut rng) {
            eprintln!("after {done} schedules: {held}");
            let failing = shrink(batch);
            panic!("{held}; fewest schedules: {failing:#?}");
        }
        done += batch.len();
        clients += batch.iter().map(|one| one.clients.len()).sum::<usize>();
        if done % 1000 == 0 {
            let seconds = started.elapsed().as_secs();
            println!(
                "{done} schedules, {clients} clients, {seconds} s: {}",
                mesh.summary()
            );
        }
    }
    println!("{done} schedules, {clients} clients: {}", mesh.summary());
    mesh.end();
}
