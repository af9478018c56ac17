//! The open loop: request `k` is due at `start + k / rate`, on connection `k mod n`.
//!
//! A connection that is still busy sends late, but its latency counts from when it was due.

use std::rc::Rc;
use std::time::{Duration, Instant};

use maglor_testkit::load_generator::Clock;
use maglor_testkit::load_generator::open::Open;
use tokio::time::{sleep, sleep_until, timeout};

use super::connection::open_all;
use super::shared::{Border, Measured, Shared};
use super::{Options, Report};
use crate::error::{Doing, Result};

/// How long responses may still arrive after the window.
const GRACE: Duration = Duration::from_secs(3);

pub(super) async fn run(options: &Options, rate: u32) -> Result<Report> {
    let shared = Rc::<Shared>::default();
    let open = Open::start(open_all(&options.target).await?, &shared);
    let clock = Clock::new().doing("start the pacing timer")?;
    sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    let from = began + options.warmup();
    let until = from + options.measure();
    shared.measured.set(Measured::DueFrom(from));
    let period = Duration::from_secs(1) / rate;
    let due = (1_u32..).map(move |turn| began + period * turn);
    let due = due.take_while(move |due| *due < until);
    let planned = due.clone().filter(|due| *due >= from).count() as u64;
    let pacing = tokio::task::spawn_local(async move { open.pace(due, &clock).await });
    sleep_until(from.into()).await;
    let start = Border::now(&shared, &options.watch)?;
    sleep_until(until.into()).await;
    let end = Border::now(&shared, &options.watch)?;
    let sessions = pacing.await.map_err(std::io::Error::from).flatten();
    let mut sessions = sessions.doing("wait for a request's time")?;
    let _ = timeout(GRACE, async {
        while sessions.join_next().await.is_some() {}
    })
    .await;
    let missing = planned.saturating_sub(shared.recorded());
    if missing > 0 {
        shared.fail_many(missing, || {
            format!("{missing} answers missing after {GRACE:?}")
        });
    }
    Ok(shared.report(&start, &end))
}
