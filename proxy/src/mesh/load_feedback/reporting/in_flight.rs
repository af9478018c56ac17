//! Guard that counts a request at the server behind a load reporter, from its admission to its end.

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use maglor_balance::Time;
use maglor_balance::queue_protocol::{Admitted, Held, Report};
use tokio::time::{Instant, timeout_at};

use super::{LedgerLocation, LoadReporter, Reported};
use crate::mesh::load_feedback::calls::{Present, Suspendable};
use crate::mesh::load_feedback::queue_protocol::{
    Frame, QueueRequest, QueueResponse, Reporter as _, orca,
};
use crate::mesh::load_feedback::upstreams::Upstreams;
use crate::protocol::fields::Fields;
use crate::runtime::shared::Shared;
use crate::runtime::worker::Worker;

/// Interval at which reports are repeated.
const REMINDER: Duration = Duration::from_secs(1);

/// Counts an admitted request until it ends, and then notifies balancers and the ledger.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    worker: Rc<Worker>,
    upstreams: Rc<Upstreams>,
    counted: Arc<CountedRequest>,
    /// Registration by request identifier, for the calls that are made for the request; `None` without an identifier.
    present: Option<Present>,
    /// Whether the client's proxy reads the response's queue field.
    asked: bool,
    ending: Ending,
}

/// How a request ended at the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    /// With any error, or without a response.
    Error,
    /// With a successful response.
    Good,
    /// The client disconnected before the end of the response.
    Left,
}

impl InFlightGuard {
    /// Admits a request.
    ///
    /// # Errors
    /// If the number of requests in flight exceeds the request's limit; the error contains this number.
    pub(crate) fn begin(
        load_reporter: &Arc<LoadReporter>,
        (worker, upstreams): (&Rc<Worker>, &Rc<Upstreams>),
        asked: Option<QueueRequest>,
        now: Instant,
    ) -> Result<Self, u32> {
        let admitted = load_reporter.admit(asked, worker.shard(), worker.time(now))?;
        load_reporter.metrics.in_flight.inc(worker.shard());
        if load_reporter.claim_supervision() {
            let (load_reporter, worker, upstreams) = (
                Arc::downgrade(load_reporter),
                Rc::clone(worker),
                Rc::clone(upstreams),
            );
            tokio::task::spawn_local(supervise(load_reporter, worker, upstreams));
        }
        let counted = CountedRequest {
            load_reporter: Arc::clone(load_reporter),
            shared: Arc::clone(worker.shared()),
            admitted: Mutex::new(Some(admitted)),
        };
        Ok(Self {
            worker: Rc::clone(worker),
            upstreams: Rc::clone(upstreams),
            counted: Arc::new(counted),
            present: None,
            asked: asked.is_some(),
            ending: Ending::Left,
        })
    }

    /// Sets the request's identifier. While calls with this identifier are in progress, the request does not count.
    pub(crate) fn identify(&mut self, id: &[u8]) {
        let counted = Arc::<CountedRequest>::clone(&self.counted);
        self.present = Some(self.upstreams.calls.arrive(id, counted));
    }

    /// Records how the request ended. If this is not called, the request counts as abandoned by its client.
    pub(crate) fn ended(&mut self, ending: Ending) {
        self.ending = ending;
    }

    /// Sets the number of requests in flight in the response, if the request asked for it or the configuration
    /// requires it.
    pub(crate) fn describe(&self, fields: &mut Fields) {
        let load_reporter = &self.counted.load_reporter;
        if self.asked {
            QueueResponse::InFlight(load_reporter.in_flight()).set(fields);
        }
        if load_reporter.speaks_orca {
            orca::set(load_reporter.in_flight(), fields);
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        // After this no call can make the request wait.
        self.present = None;
        let load_reporter = &self.counted.load_reporter;
        load_reporter.metrics.in_flight.dec(self.worker.shard());
        let now = self.worker.time(Instant::now());
        let Some(admitted) = self.counted.admitted().take() else {
            return;
        };
        let report = match self.ending {
            Ending::Error => admitted.fail(now).unwrap_or_else(|held| {
                self.keep(held, now);
                // The count is unchanged, but the ledger should know that the request has reached the server.
                Some(load_reporter.report())
            }),
            Ending::Good => admitted.finish(now),
            Ending::Left => admitted.abandon(),
        };
        if let Some(report) = report {
            notify(load_reporter, &self.worker, &self.upstreams, &report);
        }
    }
}

impl InFlightGuard {
    /// Keeps counting a failed request until the time at which a successful response would have arrived, and reports
    /// then.
    fn keep(&self, held: Held, now: Time) {
        let until = Instant::now() + held.until().saturating_since(now);
        let load_reporter = Arc::clone(&self.counted.load_reporter);
        let (worker, upstreams) = (Rc::clone(&self.worker), Rc::clone(&self.upstreams));
        let release = move || {
            drop(held);
            notify(&load_reporter, &worker, &upstreams, &load_reporter.report());
        };
        self.worker.delayed_releases.add(until, Box::new(release));
    }
}

/// The part of a guard that other threads may access.
#[derive(Debug)]
struct CountedRequest {
    load_reporter: Arc<LoadReporter>,
    shared: Arc<Shared>,
    admitted: Mutex<Option<Admitted>>,
}

impl CountedRequest {
    fn admitted(&self) -> MutexGuard<'_, Option<Admitted>> {
        // A panic leaves no partial update.
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        self.shared.time(Instant::now())
    }
}

impl Suspendable for CountedRequest {
    fn wait(&self) {
        if let Some(admitted) = &mut *self.admitted() {
            admitted.wait(self.now());
            // The server has one request less to process; this is reported like the end of a request.
            self.load_reporter.changed.notify_one();
        }
    }

    fn resume(&self) {
        if let Some(admitted) = &mut *self.admitted() {
            admitted.resume(self.now());
        }
    }
}

/// Returns a frame with the server's load, as an unsolicited report.
fn load_frame(load_reporter: &LoadReporter) -> Frame {
    Frame::Load {
        number: 0,
        load: load_reporter.load(),
    }
}

/// Sends a server's report to the balancers and the ledger that need it.
fn notify(
    load_reporter: &Arc<LoadReporter>,
    worker: &Rc<Worker>,
    upstreams: &Rc<Upstreams>,
    report: &Report,
) {
    let notified = worker.with_rng(|rng| {
        load_reporter
            .subscribers
            .notify(&load_frame(load_reporter), rng)
    });
    load_reporter.metrics.notified.add_shared(notified);
    report_to_ledger(load_reporter, worker, upstreams, report);
}

fn report_to_ledger(
    load_reporter: &Arc<LoadReporter>,
    worker: &Rc<Worker>,
    upstreams: &Rc<Upstreams>,
    report: &Report,
) {
    let Some(reported) = load_reporter.reported_server() else {
        return;
    };
    let Reported {
        own,
        joined,
        ledger,
    } = reported;
    let now = worker.time(Instant::now());
    let report = Report {
        age: Some(now.saturating_since(joined)),
        ..*report
    };
    match ledger {
        LedgerLocation::Own => load_reporter.reported(own, &report, None, now),
        LedgerLocation::Host(cluster, host) => {
            load_reporter.metrics.reports.add_shared(1);
            let channel = upstreams.channel(&cluster, &host, worker);
            channel.report(own, &report, || Arc::<LoadReporter>::clone(load_reporter));
        }
    }
}

/// Maintains a load reporter while it exists. Reports load changes that no finished request reports, and repeats
/// reports, because messages get lost and processes restart.
async fn supervise(
    load_reporter: Weak<LoadReporter>,
    worker: Rc<Worker>,
    upstreams: Rc<Upstreams>,
) {
    let Some(changed) = load_reporter
        .upgrade()
        .map(|load_reporter| Arc::clone(&load_reporter.changed))
    else {
        return;
    };
    let mut reminder = Instant::now() + REMINDER;
    loop {
        let changed = timeout_at(reminder, changed.notified()).await.is_ok();
        let Some(load_reporter) = load_reporter.upgrade() else {
            return;
        };
        let report = load_reporter.report();
        if changed {
            notify(&load_reporter, &worker, &upstreams, &report);
            continue;
        }
        reminder = Instant::now() + REMINDER;
        let notified = load_reporter
            .subscribers
            .notify_all(&load_frame(&load_reporter));
        load_reporter.metrics.notified.add_shared(notified);
        report_to_ledger(&load_reporter, &worker, &upstreams, &report);
    }
}
