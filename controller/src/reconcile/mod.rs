//! The common reconciliation loop of the operators: watches, caches, a queue of units of work, and back-off, while
//! this replica is the leader.
//!
//! ```text
//! watch ──► cache ──► units of the old and the new object ──► queue ──► reconcile ──► pause, or nothing
//!                                                               ▲                       │
//!                                                               └───────────────────────┘
//! ```
//!
//! The loop is built from kube's watcher, reflector store and scheduler. kube's own `Controller` reconciles objects
//! and drops requests for objects that do not exist, but a unit may be, for example, a Service that a policy names
//! and that was deleted (docs/decisions/033-reconcile-kernel.md). A unit is queued only once, regardless of the
//! number of events, and units are reconciled one at a time, so that an operator needs no locks. Nothing is polled:
//! an operator decides on the basis of the caches, and sends requests to the API server only when there is something
//! to write.
//!
//! An operator is created at the beginning of each term of this replica and dropped at its end, together with its
//! watches, so that changes by another leader in between are listed. Dropping it at any `await` is equivalent to a
//! crash of the controller at that point. Nothing is lost, because the cluster contains everything that a successor
//! needs.

pub(crate) mod cache;
pub(crate) mod policies;
#[cfg(test)]
pub(crate) mod stops;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::pin::pin;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kube::runtime::scheduler;
use kube::runtime::scheduler::ScheduleRequest;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::lease::Term;
pub(crate) use cache::{Cache, Lookup, Watch, Watches};

/// First pause after a failed reconciliation. Each further failure of the same unit doubles the pause.
const REST: Duration = Duration::from_millis(200);
/// Maximum pause after failed reconciliations.
const MOST_REST: Duration = Duration::from_secs(5);

/// Time after which a unit is reconciled again without an event; `None` if it is not.
pub(crate) type Again = Option<Duration>;

/// An operator.
pub(crate) trait Reconciler: Send {
    /// A unit of reconciliation.
    type Unit: Clone + Debug + Eq + Hash + Send + 'static;

    /// The operator's name, for log messages.
    const NAME: &'static str;

    /// Takes all steps that are currently possible. After an error it is called again with back-off.
    fn reconcile(
        &mut self,
        unit: &Self::Unit,
    ) -> impl Future<Output = Result<Again, kube::Error>> + Send;
}

/// Runs an operator in each term of this replica, until the sender of the term is dropped. `begin` opens the
/// operator's watches; the first unit is reconciled when all caches are complete.
pub(crate) async fn run<R: Reconciler>(
    mut term: watch::Receiver<Term>,
    begin: impl Fn(Watches<R::Unit>) -> R,
) {
    while let Some(number) = begun(&mut term).await {
        let (heard, units) = mpsc::unbounded_channel();
        let (watches, followed) = Watches::new(heard);
        let complete = watches.complete();
        let operator = begin(watches);
        tokio::select! {
            // No reconciliation starts after the end of the term.
            biased;
            () = over(&mut term, number) => {}
            () = followed => {}
            () = work(operator, units, complete) => {}
        }
    }
}

/// Waits for a term and returns its number; `None` if there will be none.
async fn begun(term: &mut watch::Receiver<Term>) -> Option<i32> {
    let term = term.wait_for(|term| term.holds(Instant::now())).await;
    term.ok().map(|term| term.number())
}

/// Waits for the end of a term.
async fn over(term: &mut watch::Receiver<Term>, number: i32) {
    loop {
        let now = *term.borrow_and_update();
        if now.number() != number || !now.holds(Instant::now()) {
            return;
        }
        let end = sleep(now.left());
        tokio::select! {
            // Without a sender the term is not renewed.
            Ok(()) = term.changed() => {}
            () = end => {}
        }
    }
}

/// Reconciles units once the caches are complete; never returns.
async fn work<R: Reconciler>(
    mut operator: R,
    mut heard: mpsc::UnboundedReceiver<R::Unit>,
    complete: impl Future<Output = ()>,
) {
    complete.await;
    let (again, mut postponed) = mpsc::unbounded_channel();
    let at = |unit, run_at| ScheduleRequest {
        message: unit,
        run_at,
    };
    let heard = stream::poll_fn(move |context| heard.poll_recv(context));
    let heard = heard.map(|unit| at(unit, Instant::now()));
    let postponed = stream::poll_fn(move |context| postponed.poll_recv(context));
    let mut queue = pin!(scheduler(stream::select(heard, postponed)));
    let mut rests: HashMap<R::Unit, Duration> = HashMap::new();
    while let Some(unit) = queue.next().await {
        let pause = match operator.reconcile(&unit).await {
            Ok(pause) => {
                rests.remove(&unit);
                pause
            }
            Err(error) => {
                let rest = rests.entry(unit.clone()).or_insert(REST);
                let pause = *rest;
                *rest = (pause * 2).min(MOST_REST);
                tracing::warn!(?unit, %error, retry_in = ?pause, "{}: reconciliation failed", R::NAME);
                Some(pause)
            }
        };
        if let Some(pause) = pause {
            // The receiver ends with this function.
            let _ = again.send(at(unit, Instant::now() + pause));
        }
    }
}
