//! The open loop: request `k` is due at `start + k / rate`, on connection `k mod n`.
//!
//! A connection that is still busy sends late, but its latency counts from when it was due.

use std::rc::Rc;
use std::time::{Duration, Instant};

use maglor_testkit::app::Clock;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use super::connection::{Connection, open_all};
use super::shared::{Border, Shared};
use super::{Options, Report};
use crate::error::{Doing, Result};

/// How long responses may still arrive after the window.
const GRACE: Duration = Duration::from_secs(3);

/// A request's due time, and whether it lies in the measured window.
#[derive(Debug, Clone, Copy)]
struct Due {
    at: Instant,
    measured: bool,
}

pub(super) async fn run(options: &Options, rate: u32) -> Result<Report> {
    let shared = Shared::new()?;
    let (mut senders, mut asking) = (Vec::new(), JoinSet::new());
    for connection in open_all(&options.target).await? {
        let (sender, receiver) = unbounded_channel();
        senders.push(sender);
        asking.spawn_local(ask(connection, receiver, Rc::clone(&shared)));
    }
    sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    let plan = (options.warmup(), options.measure());
    let pacing = tokio::task::spawn_local(pace(senders, rate, plan, began));
    sleep_until((began + options.warmup()).into()).await;
    let start = Border::now(&shared, &options.watch)?;
    sleep_until((began + options.warmup() + options.measure()).into()).await;
    let end = Border::now(&shared, &options.watch)?;
    let planned = match pacing.await {
        Ok(planned) => planned?,
        Err(error) => return Err(std::io::Error::from(error)).doing("pace"),
    };
    let _ = timeout(GRACE, async { while asking.join_next().await.is_some() {} }).await;
    let missing = planned.saturating_sub(shared.recorded());
    if missing > 0 {
        shared.fail_many(missing, || {
            format!("{missing} answers missing after {GRACE:?}")
        });
    }
    Ok(shared.report(&start, &end))
}

/// Issues due times and returns how many lie in the measured window.
async fn pace(
    senders: Vec<UnboundedSender<Due>>,
    rate: u32,
    (warmup, measure): (Duration, Duration),
    began: Instant,
) -> Result<u64> {
    let period = Duration::from_secs(1) / rate;
    let clock = Clock::new().doing("start the pacing timer")?;
    let mut at = began;
    let mut planned = 0;
    for sender in senders.iter().cycle() {
        at += period;
        clock
            .sleep_until(at)
            .await
            .doing("wait for a request's time")?;
        let measured = at >= began + warmup;
        if at >= began + warmup + measure {
            break;
        }
        planned += u64::from(measured);
        // A connection that failed has reported its error itself.
        let _ = sender.send(Due { at, measured });
    }
    Ok(planned)
}

async fn ask(mut connection: Connection, mut due: UnboundedReceiver<Due>, shared: Rc<Shared>) {
    while let Some(due) = due.recv().await {
        if let Err(error) = connection.round_trip().await {
            shared.fail(&error);
            return;
        }
        shared.complete();
        if due.measured {
            shared.record(due.at.elapsed());
        }
    }
}
