//! The closed loop: each connection sends the next request as soon as it has a response.

use std::rc::Rc;

use maglor_testkit::load_generator::closed::{Users, start};
use tokio::time::sleep;

use super::connection::open_all;
use super::shared::{Border, Measured, Shared};
use super::{Options, Report};
use crate::error::Result;

pub(super) async fn run(options: &Options) -> Result<Report> {
    let shared = Rc::<Shared>::default();
    let connections = open_all(&options.target).await?;
    let users = start(connections, Users::default(), &shared);
    sleep(options.warmup()).await;
    let start = Border::now(&shared, &options.watch)?;
    shared.measured.set(Measured::All);
    sleep(options.measure()).await;
    shared.measured.set(Measured::None);
    let end = Border::now(&shared, &options.watch)?;
    drop(users);
    Ok(shared.report(&start, &end))
}
