//! One request's stay at the server behind a station.

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use maglor_balance::exchange::{Admitted, Report};
use tokio::time::{Instant, MissedTickBehavior};

use super::{Addressee, Station};
use crate::exchange::{Asked, Frame, Reporter as _, Said};
use crate::fields::Fields;
use crate::upstream::Pools;
use crate::worker::Worker;

/// How often what was told is told again.
const REMINDER: Duration = Duration::from_secs(1);

/// A request that was let in, until it ends; then balancers and ledger are told.
#[derive(Debug)]
pub(crate) struct Visit {
    station: Arc<Station>,
    worker: Rc<Worker>,
    pools: Rc<Pools>,
    admitted: Option<Admitted>,
    /// Whether the one who sent the request reads what the response says of the queue.
    asked: bool,
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
            tokio::task::spawn_local(remind(station, worker, pools));
        }
        Ok(Self {
            station: Arc::clone(station),
            worker: Rc::clone(worker),
            pools: Rc::clone(pools),
            admitted: Some(admitted),
            asked: asked.is_some(),
        })
    }

    /// Says in the response how many are in flight, where the request asked.
    pub(crate) fn describe(&self, fields: &mut Fields) {
        if self.asked {
            Said::InFlight(self.station.in_flight()).set(fields);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let Some(admitted) = self.admitted.take() else {
            return;
        };
        self.station.metrics.in_flight.dec(self.worker.shard());
        let now = self.worker.time(Instant::now());
        if let Some(report) = admitted.finish(now) {
            tell(&self.station, &self.worker, &self.pools, &report);
        }
    }
}

/// Tells whoever should know what a server reports.
fn tell(station: &Arc<Station>, worker: &Rc<Worker>, pools: &Rc<Pools>, report: &Report) {
    let load = Frame::Load {
        number: 0,
        load: station.load(),
    };
    let told = worker.with_rng(|rng| station.listeners.tell(&load, rng));
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

/// Tells again what was told last, for as long as there is the station: messages get lost, and
/// processes restart.
async fn remind(station: Weak<Station>, worker: Rc<Worker>, pools: Rc<Pools>) {
    let mut ticks = tokio::time::interval(REMINDER);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(station) = station.upgrade() else {
            return;
        };
        let load = Frame::Load {
            number: 0,
            load: station.load(),
        };
        let told = station.listeners.tell_all(&load);
        station.metrics.told.add_shared(told);
        tell_ledger(&station, &worker, &pools, &station.report());
    }
}
