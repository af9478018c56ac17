//! The load: an open loop with random arrivals, the same ones for every policy.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use maglor_balance::Rng;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior};

use super::plan::Plan;
use super::proxy::Proxy;
use super::screen::{Frame, Screen};
use super::servers::{SERVED_BY, WORK};
use super::tally::Tally;
use crate::demo::client::{Client, Failure};
use crate::demo::exponential;
use crate::demo::stop::Stop;

/// The limit of requests in progress; beyond that arrivals wait, so that the demo stays a small
/// load in any case.
const MOST_UNDER_WAY: u32 = 1000;
/// The number of different users, for policies that hash.
const USERS: u32 = 1000;
const HOST: &str = "demo.example";
const SEED: u64 = 0x6d61_676c_6f72;
const FRAME: Duration = Duration::from_secs(1);
/// The proxy handles the same signals. A request that fails is not counted when a signal comes this
/// soon after it.
const SIGNAL_LAG: Duration = Duration::from_millis(100);

/// The state that is common to all policies.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) plan: &'a Plan,
    pub(super) servers: &'a [SocketAddr],
    pub(super) proxy: &'a Proxy,
    pub(super) stop: Rc<Stop>,
}

impl Stage<'_> {
    /// Runs one policy under load, from its first request to its last response.
    pub(super) async fn drive(&self, index: usize, screen: &mut Screen) -> Tally {
        let plan = self.plan;
        let tally = Rc::new(RefCell::new(Tally::new(plan.servers)));
        let Some(address) = self.proxy.listener(index) else {
            return tally.take();
        };
        let load = Load {
            client: Rc::new(Client::new(address, HOST)),
            tally: Rc::clone(&tally),
            stop: Rc::clone(&self.stop),
            places: Arc::new(Semaphore::new(MOST_UNDER_WAY as usize)),
        };
        let admin = Client::new(self.proxy.admin, "localhost");
        let started = Instant::now();
        let mut frames = tokio::time::interval_at(started + FRAME, FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        screen.begin(&plan.policies[index]);
        let mut arrivals = pin!(load.arrivals(plan.rate, started + plan.each));
        loop {
            tokio::select! {
                biased;
                () = self.stop.wait() => break,
                () = &mut arrivals => break,
                _ = frames.tick() => {
                    let outstanding = self.outstanding(&admin, index).await;
                    let recent = tally.borrow_mut().take_recent();
                    screen.draw(&Frame {
                        since: started.elapsed(),
                        recent: &recent,
                        outstanding: &outstanding,
                        failures: tally.borrow().failures(),
                    });
                }
            }
        }
        tally.borrow_mut().took = started.elapsed();
        load.all_answered().await;
        screen.end();
        tally.take()
    }

    /// Returns the proxy's outstanding requests at each server, from its admin port.
    async fn outstanding(&self, admin: &Client, index: usize) -> Vec<u64> {
        let page = admin.get("/clusters").await.unwrap_or_default();
        let page: Value = serde_json::from_slice(&page).unwrap_or_default();
        let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let name = Plan::listener(index);
        let cluster = all(&page["clusters"])
            .into_iter()
            .find(|cluster| cluster["name"] == name.as_str());
        let endpoints = all(&cluster.unwrap_or_default()["endpoints"]);
        let of = |server: &SocketAddr| {
            let server = server.to_string();
            let endpoint = endpoints.iter().find(|e| e["address"] == server.as_str());
            endpoint.and_then(|endpoint| endpoint["outstanding"].as_u64())
        };
        self.servers
            .iter()
            .map(|server| of(server).unwrap_or(0))
            .collect()
    }
}

struct Load {
    client: Rc<Client>,
    tally: Rc<RefCell<Tally>>,
    stop: Rc<Stop>,
    places: Arc<Semaphore>,
}

impl Load {
    /// Sends requests at random moments (a Poisson process) until `end`.
    async fn arrivals(&self, rate: f64, end: Instant) {
        let mut rng = Rng::seed(SEED);
        let mut due = Instant::now();
        loop {
            due += Duration::from_secs_f64(exponential(&mut rng) / rate);
            tokio::time::sleep_until(due.min(end)).await;
            if due >= end {
                return;
            }
            let (work, user) = (exponential(&mut rng), rng.below(USERS));
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                return; // never: it is not closed
            };
            let (client, stop) = (Rc::clone(&self.client), Rc::clone(&self.stop));
            let tally = Rc::clone(&self.tally);
            tokio::task::spawn_local(async move {
                let sent = Instant::now();
                match ask(&client, work, user).await {
                    Ok(server) => tally.borrow_mut().answered(server, sent.elapsed()),
                    Err(failure) => {
                        tokio::time::sleep(SIGNAL_LAG).await;
                        if !stop.requested() {
                            tally.borrow_mut().failed(&failure);
                        }
                    }
                }
                drop(place);
            });
        }
    }

    /// Waits for the requests in progress.
    async fn all_answered(&self) {
        drop(self.places.acquire_many(MOST_UNDER_WAY).await);
    }
}

/// Sends a request with this amount of work; returns the server that responded.
async fn ask(client: &Client, work: f64, user: u32) -> Result<usize, Failure> {
    let mut request = Client::request("/");
    let headers = request.headers_mut();
    headers.insert("x-user", HeaderValue::from(user));
    if let Ok(work) = HeaderValue::from_str(&format!("{work:.4}")) {
        headers.insert(WORK, work);
    }
    let response = client.send(request).await?;
    let server = response.headers().get(SERVED_BY);
    server
        .and_then(|index| index.to_str().ok()?.parse().ok())
        .ok_or(Failure::Intruder)
}
