//! One server: a queue, the handling of requests, and their counts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hyper::header::{HeaderMap, HeaderValue};
use maglor_balance::Rng;
use serde::{Deserialize, Serialize};

use super::caller::{CALLER_NODE, Caller, REQUEST_ID};
use super::cpu_quota::CpuQuota;
use super::deployment::{Deployment, Placed};
use super::distribution::Work;
use super::fault::Fault;
use super::queue::Queue;
use super::workmodel::{Group, Service, WorkModel};
use crate::load_generator::Clock;

/// The counts of an instance.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Counts {
    /// Its host.
    pub host: String,
    /// Its listening address.
    pub listen: SocketAddr,
    /// Requests in progress: they are queued, processed, or wait for called services. A
    /// request whose client has disconnected is not included, but its processing continues.
    pub in_flight: u32,
    /// Of them, those whose own work has not ended.
    pub queued: u32,
    /// The maximum queue length.
    pub queued_peak: u32,
    /// Requests that came.
    pub arrived: u64,
    /// Of them, those from instances on other nodes; none without `--node`.
    pub from_elsewhere: u64,
    /// Of all that came, those that were answered with 200.
    pub succeeded: u64,
    /// Work that came, µs.
    pub work_us: u64,
    /// From arrival to the end of the own work, µs, of all arrivals: the result of an exact queue.
    pub sojourn_us: u64,
    /// By how much timers were late, µs, of all whose work has ended.
    pub late_us: u64,
}

/// The state of an instance that is visible to other threads.
///
/// Counters are written by the instance's thread alone; relaxed, because they order nothing.
#[derive(Debug, Default)]
pub(super) struct Shared {
    in_flight: AtomicU32,
    queued: AtomicU32,
    queued_peak: AtomicU32,
    arrived: AtomicU64,
    from_elsewhere: AtomicU64,
    succeeded: AtomicU64,
    work_us: AtomicU64,
    sojourn_us: AtomicU64,
    late_us: AtomicU64,
    fault: Mutex<Fault>,
}

impl Shared {
    pub(super) fn counts(&self, placed: &Placed) -> Counts {
        let long = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            host: placed.host.clone(),
            listen: placed.listen,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            queued: self.queued.load(Ordering::Relaxed),
            queued_peak: self.queued_peak.load(Ordering::Relaxed),
            arrived: long(&self.arrived),
            from_elsewhere: long(&self.from_elsewhere),
            succeeded: long(&self.succeeded),
            work_us: long(&self.work_us),
            sojourn_us: long(&self.sojourn_us),
            late_us: long(&self.late_us),
        }
    }

    /// Resets the totals, but not the present values.
    pub(super) fn reset(&self) {
        let queued = self.queued.load(Ordering::Relaxed);
        self.queued_peak.store(queued, Ordering::Relaxed);
        let counters = [
            &self.arrived,
            &self.from_elsewhere,
            &self.succeeded,
            &self.work_us,
            &self.sojourn_us,
            &self.late_us,
        ];
        for counter in counters {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn set_fault(&self, fault: Fault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    fn fault(&self) -> Fault {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Increments a gauge until it is dropped.
struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    fn new(counter: &'a AtomicU32) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A server, on the thread that created it.
#[derive(Debug)]
pub(super) struct Instance {
    /// The services by path.
    services: HashMap<String, Behaviour>,
    queue: RefCell<Queue>,
    rng: RefCell<Rng>,
    began: Instant,
    clock: Rc<Clock>,
    caller: Caller,
    shared: Arc<Shared>,
}

/// The handling of requests for one path.
#[derive(Debug)]
struct Behaviour {
    work: Work,
    queues: bool,
    mean_kb: f64,
    groups: Vec<Calls>,
}

/// Services that are called one after another.
#[derive(Debug)]
struct Calls {
    drawn: usize,
    calls: Vec<Call>,
}

#[derive(Clone, Debug)]
struct Call {
    probability: f64,
    host: Rc<str>,
    path: Rc<str>,
    /// A proxy, or all instances of the host.
    targets: Rc<[SocketAddr]>,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The size of the body in bytes.
    pub(super) size: usize,
    /// The time taken by queues alone: here, and at called services.
    pub(super) exact: Duration,
}

/// The status of µBench when a called service fails.
const CALLEE_FAILED: u16 = 500;
const NOT_FOUND: u16 = 404;
/// The longest body in bytes.
pub(super) const LONGEST: usize = 1 << 20;

impl Instance {
    pub(super) fn new(
        model: &WorkModel,
        deployment: &Deployment,
        placed: &Placed,
        clock: &Rc<Clock>,
        shared: &Arc<Shared>,
        (seed, node): (u64, Option<HeaderValue>),
    ) -> Self {
        let own = || {
            let services = model.services();
            services.filter(|(name, service)| service.host(name) == placed.host)
        };
        let behaviour = |service: &Service| Behaviour {
            work: service.work(),
            queues: service.internal_service.queue.is_some(),
            mean_kb: service.mean_response_size(),
            groups: calls(model, deployment, placed, &service.external_services),
        };
        let services = own().map(|(_, service)| (service.path.clone(), behaviour(service)));
        let workers = own().map(|(_, service)| service.workers()).min();
        let workers = workers.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        let mut rng = Rng::seed(seed);
        let limits = own().filter_map(|(_, service)| service.cpu_limit());
        let limit = limits.min_by(|(one, _), (other, _)| one.total_cmp(other));
        let queue = match limit {
            Some((cpus, period)) => Queue::limited(CpuQuota::new(cpus, period, &mut rng)),
            None => Queue::new(workers),
        };
        Self {
            services: services.collect(),
            queue: RefCell::new(queue),
            rng: RefCell::new(rng),
            began: Instant::now(),
            clock: Rc::clone(clock),
            caller: Caller::at(placed.listen.ip()).on_node(node),
            shared: Arc::clone(shared),
        }
    }

    /// Processes a request for `path`. A single service handles all paths.
    pub(super) async fn serve(&self, path: &str, headers: &HeaderMap) -> Answer {
        let request_id = headers.get(REQUEST_ID);
        if self.caller.is_elsewhere(headers.get(CALLER_NODE)) {
            self.shared.from_elsewhere.fetch_add(1, Ordering::Relaxed);
        }
        let single = || {
            self.services
                .values()
                .next()
                .filter(|_| self.services.len() == 1)
        };
        let Some(behaviour) = self.services.get(path).or_else(single) else {
            return Answer {
                status: NOT_FOUND,
                size: 0,
                exact: Duration::ZERO,
            };
        };
        let _here = Counted::new(&self.shared.in_flight);
        let (failure, delay) = {
            let mut rng = self.rng.borrow_mut();
            self.shared.fault().draw(&mut rng)
        };
        let mut exact = self.work(behaviour).await + delay;
        let status = match failure {
            Some(status) => status,
            None => match self.call(&behaviour.groups, request_id).await {
                Some(called) => {
                    exact += called;
                    200
                }
                None => CALLEE_FAILED,
            },
        };
        if delay > Duration::ZERO {
            // Without a timer there is no delay; the response is valid all the same.
            let _ = self.clock.sleep_until(Instant::now() + delay).await;
        }
        if status == 200 {
            self.shared.succeeded.fetch_add(1, Ordering::Relaxed);
        }
        let size = self.size(behaviour.mean_kb);
        Answer {
            status,
            size,
            exact,
        }
    }

    /// Waits for the end of a request's own work; returns its duration.
    async fn work(&self, behaviour: &Behaviour) -> Duration {
        let work = behaviour.work.draw(&mut self.rng.borrow_mut());
        let shared = &self.shared;
        let now = self.began.elapsed();
        let end = if behaviour.queues {
            self.queue.borrow_mut().arrive(now, work)
        } else {
            now + work
        };
        let queued = Counted::new(&shared.queued);
        let peak = shared.queued.load(Ordering::Relaxed);
        shared.queued_peak.fetch_max(peak, Ordering::Relaxed);
        shared.arrived.fetch_add(1, Ordering::Relaxed);
        shared.work_us.fetch_add(micros(work), Ordering::Relaxed);
        shared
            .sojourn_us
            .fetch_add(micros(end - now), Ordering::Relaxed);
        // If the timer fails, the work ends immediately, which the counts of delays show.
        let _ = self.clock.sleep_until(self.began + end).await;
        let late = self.began.elapsed().saturating_sub(end);
        shared.late_us.fetch_add(micros(late), Ordering::Relaxed);
        drop(queued);
        end - now
    }

    /// Calls all groups; returns the time taken by queues alone, if every response was 200.
    async fn call(&self, groups: &[Calls], request_id: Option<&HeaderValue>) -> Option<Duration> {
        match groups {
            [] => Some(Duration::ZERO),
            [only] => self.call_group(only, request_id).await,
            several => {
                let calls = several
                    .iter()
                    .map(|group| self.call_group(group, request_id));
                let took: Option<Vec<_>> = join_all(calls).await.into_iter().collect();
                took?.into_iter().max()
            }
        }
    }

    async fn call_group(
        &self,
        group: &Calls,
        request_id: Option<&HeaderValue>,
    ) -> Option<Duration> {
        let mut took = Some(Duration::ZERO);
        for (call, target) in self.drawn(group) {
            let answer = self.caller.get(target, &call.host, &call.path, request_id);
            let answer = answer.await;
            // The others are called all the same, as in µBench.
            took = match (took, answer) {
                (Some(took), Ok(answer)) if answer.status == 200 => Some(took + answer.exact),
                _ => None,
            };
        }
        took
    }

    /// Draws the services that this request calls, with their addresses.
    fn drawn(&self, group: &Calls) -> Vec<(Call, SocketAddr)> {
        let mut rng = self.rng.borrow_mut();
        let mut below = |n: usize| rng.below(u32::try_from(n).unwrap_or(u32::MAX)) as usize;
        let mut order: Vec<usize> = (0..group.calls.len()).collect();
        if group.drawn < order.len() {
            for place in 0..group.drawn {
                let other = place + below(order.len() - place);
                order.swap(place, other);
            }
            order.truncate(group.drawn);
        }
        let mut drawn = Vec::with_capacity(order.len());
        for index in order {
            let call = &group.calls[index];
            let certain = call.probability >= 1.0;
            if certain || rng.unit() < call.probability {
                let count = u32::try_from(call.targets.len()).unwrap_or(u32::MAX);
                if let Some(target) = call.targets.get(rng.below(count) as usize) {
                    drawn.push((call.clone(), *target));
                }
            }
        }
        drawn
    }

    fn size(&self, mean_kb: f64) -> usize {
        if mean_kb <= 0.0 {
            return 1;
        }
        let unit = self.rng.borrow_mut().unit();
        let bytes = -(1.0 - unit).ln() * 1000.0 * mean_kb;
        // Saturates; it is not negative.
        (bytes as usize).clamp(1, LONGEST)
    }
}

fn calls(
    model: &WorkModel,
    deployment: &Deployment,
    caller: &Placed,
    groups: &[Group],
) -> Vec<Calls> {
    let addresses = deployment.addresses();
    let call = |group: &Group, callee: &str| {
        let (name, service) = model.called(callee)?;
        let host = service.host(name);
        let targets = match caller.outbound {
            Some(proxy) => Rc::from([proxy]),
            None => Rc::from(addresses.get(host)?.as_slice()),
        };
        Some(Call {
            probability: group.probability(callee),
            host: host.into(),
            path: service.path.as_str().into(),
            targets,
        })
    };
    let planned = |group: &Group| {
        let callees = group.services.iter();
        Calls {
            drawn: group.seq_len as usize,
            calls: callees.filter_map(|callee| call(group, callee)).collect(),
        }
    };
    groups.iter().map(planned).collect()
}
