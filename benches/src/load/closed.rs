//! The closed loop: each connection sends the next request as soon as it has a response.

use std::rc::Rc;
use std::time::Instant;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::connection::{Connection, open_all};
use super::shared::{Border, Shared};
use super::{Options, Report};
use crate::error::Result;

pub(super) async fn run(options: &Options) -> Result<Report> {
    let shared = Shared::new()?;
    let mut asking = JoinSet::new();
    for connection in open_all(&options.target).await? {
        asking.spawn_local(ask(connection, Rc::clone(&shared)));
    }
    sleep(options.warmup()).await;
    let start = Border::now(&shared, &options.watch)?;
    shared.recording.set(true);
    sleep(options.measure()).await;
    shared.recording.set(false);
    let end = Border::now(&shared, &options.watch)?;
    shared.stopped.set(true);
    Ok(shared.report(&start, &end))
}

async fn ask(mut connection: Connection, shared: Rc<Shared>) {
    let mut sent = Instant::now();
    while !shared.stopped.get() {
        if let Err(error) = connection.round_trip().await {
            shared.fail(&error);
            return;
        }
        let done = Instant::now();
        shared.complete();
        if shared.recording.get() {
            shared.record(done.duration_since(sent));
        }
        sent = done;
    }
}
