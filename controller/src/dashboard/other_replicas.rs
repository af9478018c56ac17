//! The observations of the other replicas of the controller.

use std::sync::Arc;
use std::time::Duration;

use super::{Feed, locked};
use crate::graph::parts::Part;
use crate::graph::replicas::Replicas;

/// Interval of the requests to other replicas while there are viewers, and otherwise.
const OFTEN: Duration = Duration::from_secs(2);
const SELDOM: Duration = Duration::from_secs(10);

impl Feed {
    /// Requests the observations of other replicas; never returns.
    pub(crate) async fn follow(self: Arc<Self>, replicas: Replicas) {
        loop {
            let watched = *locked(&self.watched);
            let path = match watched {
                true => "/graph?recent&watched",
                false => "/graph?recent",
            };
            let answers = replicas.ask::<Vec<Part>>(path).await;
            *locked(&self.others) = answers.all;
            tokio::time::sleep(if watched { OFTEN } else { SELDOM }).await;
        }
    }
}
