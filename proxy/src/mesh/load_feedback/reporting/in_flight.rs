//! One request's stay at the server behind a station.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use maglor_balance::Time;
use maglor_balance::exchange::{Admitted, Held, Report};
use tokio::time::{Instant, timeout_at};

use super::{Addressee, Station};
use crate::mesh::load_feedback::calls::{Present, Stay};
use crate::mesh::load_feedback::queue_protocol::{Asked, Frame, Reporter as _, Said, orca};
use crate::protocol::fields::Fields;
use crate::runtime::shared::Shared;
use crate::runtime::worker::Worker;
use crate::upstream::Pools;

/// How often what was told is told again.
const REMINDER: Duration = Duration::from_secs(1);

/// A request that was let in, until it ends; then balancers and ledger are told.
#[derive(Debug)]
pub(crate) struct Visit {
    worker: Rc<Worker>,
    pools: Rc<Pools>,
    guest: Arc<Guest>,
    /// Known by its identifier to the calls that are made for it.
    present: Option<Present>,
    /// Whether the one who sent the request reads what the response says of the queue.
    asked: bool,
    ending: Ending,
}

/// How a request ended at the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    /// With an error of whatever kind, or without an answer.
    Error,
    /// With a good answer.
    Good,
    /// Its client has left before.
    Left,
}

impl Visit {
    /// Lets a request in.
    ///
    /// # Errors
    /// The number of requests in flight, when that is above the request's limit.
    pub(crate) fn begin(
        station: &Arc<Station>,
        (worker, pools): (&Rc<Worker>, &Rc<Pools>),
        asked: Option<Asked>,
        now: Instant,
    ) -> Result<Self, u32> {
        let admitted = station.admit(asked, worker.shard(), worker.time(now))?;
        station.metrics.in_flight.inc(worker.shard());
        if station.is_unminded() {
            let (station, worker, pools) =
                (Arc::downgrade(station), Rc::clone(worker), Rc::clone(pools));
            tokio::task::spawn_local(mind(station, worker, pools));
        }
        let guest = Guest {
            station: Arc::clone(station),
            shared: Arc::clone(worker.shared()),
            admitted: Mutex::new(Some(admitted)),
        };
        Ok(Self {
            worker: Rc::clone(worker),
            pools: Rc::clone(pools),
            guest: Arc::new(guest),
            present: None,
            asked: asked.is_some(),
            ending: Ending::Left,
        })
    }

    /// The request has this identifier: while calls with the same are under way, it does not count.
    pub(crate) fn identify(&mut self, id: &[u8]) {
        let guest = Arc::<Guest>::clone(&self.guest);
        self.present = Some(self.worker.shared().calls.arrive(id, guest));
    }

    /// The request has ended; nothing is known of one of which this is never said.
    pub(crate) fn ended(&mut self, ending: Ending) {
        self.ending = ending;
    }

    /// Says in the response how many are in flight, where the request asked or the configuration wants it.
    pub(crate) fn describe(&self, fields: &mut Fields) {
        let station = &self.guest.station;
        if self.asked {
            Said::InFlight(station.in_flight()).set(fields);
        }
        if station.speaks_orca {
            orca::set(station.in_flight(), fields);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // From here on nobody makes it wait.
        self.present = None;
        let station = &self.guest.station;
        station.metrics.in_flight.dec(self.worker.shard());
        let now = self.worker.time(Instant::now());
        let Some(admitted) = self.guest.admitted().take() else {
            return;
        };
        let report = match self.ending {
            Ending::Error => admitted.fail(now).unwrap_or_else(|held| {
                self.keep(held, now);
                // The count is what it was; but the request has reached the server, which the ledger
                // should know.
                Some(station.report())
            }),
            Ending::Good => admitted.finish(now),
            Ending::Left => admitted.abandon(),
        };
        if let Some(report) = report {
            tell(station, &self.worker, &self.pools, &report);
        }
    }
}

impl Visit {
    /// Keeps the place of an error until a good answer would have come, and reports then.
    fn keep(&self, held: Held, now: Time) {
        let until = Instant::now() + held.until().saturating_since(now);
        let station = Arc::clone(&self.guest.station);
        let (worker, pools) = (Rc::clone(&self.worker), Rc::clone(&self.pools));
        let release = move || {
            drop(held);
            tell(&station, &worker, &pools, &station.report());
        };
        self.worker.kept.add(until, Box::new(release));
    }
}

/// A visit's part that other threads may reach.
#[derive(Debug)]
struct Guest {
    station: Arc<Station>,
    shared: Arc<Shared>,
    admitted: Mutex<Option<Admitted>>,
}

impl Guest {
    fn admitted(&self) -> MutexGuard<'_, Option<Admitted>> {
        // Nothing is left half done by a panic.
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        self.shared.time(Instant::now())
    }
}

impl Stay for Guest {
    fn wait(&self) {
        if let Some(admitted) = &mut *self.admitted() {
            admitted.wait(self.now());
            // The server has one less to work on, which is news as its end would be.
            self.station.changed.notify_one();
        }
    }

    fn resume(&self) {
        if let Some(admitted) = &mut *self.admitted() {
            admitted.resume(self.now());
        }
    }
}

/// The server's load, which nobody has asked for.
fn news(station: &Station) -> Frame {
    Frame::Load {
        number: 0,
        load: station.load(),
    }
}

/// Tells whoever should know what a server reports.
fn tell(station: &Arc<Station>, worker: &Rc<Worker>, pools: &Rc<Pools>, report: &Report) {
    let told = worker.with_rng(|rng| station.listeners.tell(&news(station), rng));
    station.metrics.told.add_shared(told);
    tell_ledger(station, worker, pools, report);
}

fn tell_ledger(station: &Arc<Station>, worker: &Rc<Worker>, pools: &Rc<Pools>, report: &Report) {
    let Some((own, addressee)) = station.addressee() else {
        return;
    };
    match addressee {
        Addressee::Own => {
            let now = worker.time(Instant::now());
            station.reported(own, report, None, now);
        }
        Addressee::Host(cluster, host) => {
            station.metrics.reports.add_shared(1);
            let link = pools.link(&cluster, &host, worker);
            link.report(own, report, || Arc::<Station>::clone(station));
        }
    }
}

/// Looks after a station for as long as there is one: tells what no visit tells, and tells again what was
/// told, for messages get lost, and processes restart.
async fn mind(station: Weak<Station>, worker: Rc<Worker>, pools: Rc<Pools>) {
    let Some(changed) = station
        .upgrade()
        .map(|station| Arc::clone(&station.changed))
    else {
        return;
    };
    let mut reminder = Instant::now() + REMINDER;
    loop {
        let changed = timeout_at(reminder, changed.notified()).await.is_ok();
        let Some(station) = station.upgrade() else {
            return;
        };
        let report = station.report();
        if changed {
            tell(&station, &worker, &pools, &report);
            continue;
        }
        reminder = Instant::now() + REMINDER;
        let told = station.listeners.tell_all(&news(&station));
        station.metrics.told.add_shared(told);
        tell_ledger(&station, &worker, &pools, &report);
    }
}
