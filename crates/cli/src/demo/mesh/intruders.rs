//! Intrusion attempts, and their results.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Error;
use super::configuration::intruder;
use super::fleet::{Fleet, free};
use super::flow::Flows;
use super::services::{DETAILS, RATINGS, Replica, SERVICES};
use super::sidecar::Sidecar;
use crate::demo::client::{Client, Failure};

/// The time within which counters follow.
const COUNTED_WITHIN: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// An attempt to reach the ratings.
#[derive(Debug, Serialize)]
pub(super) struct Attempt {
    /// The description of the attempt.
    pub(super) who: &'static str,
    /// The result that the client got.
    pub(super) got: String,
    /// Whether it was not a response of the application.
    pub(super) refused: bool,
    /// The counter that the proxy of the ratings should increment.
    pub(super) counter: &'static str,
    /// Whether it was incremented.
    pub(super) counted: bool,
}

const PLAINTEXT: &str = "plaintext";
const NO_CERTIFICATE: &str = "no-certificate";
const DENIED: &str = "deny";

impl Attempt {
    fn new(who: &'static str, counter: &'static str, answer: Result<(), Failure>) -> Self {
        let (got, refused) = match answer {
            Ok(()) => ("response received".into(), false),
            Err(failure) => (failure.to_string(), true),
        };
        Self {
            who,
            got,
            refused,
            counter,
            counted: false,
        }
    }

    fn is_counted(&self, flows: &Flows) -> bool {
        match self.counter {
            DENIED => flows.denied >= 1.0,
            reason => flows.refused.get(reason).is_some_and(|&count| count >= 1.0),
        }
    }
}

/// Makes all attempts; the counts meanwhile are added to `flows`.
pub(super) async fn intrude(fleet: &mut Fleet, flows: &mut Flows) -> Result<Vec<Attempt>, Error> {
    fleet.look(flows).await;
    let ratings = fleet.ports(Replica::new(RATINGS, 1));
    let details = fleet.ports(Replica::new(DETAILS, 1));
    let (Some(ratings), Some(details)) = (ratings, details) else {
        return Ok(Vec::new()); // never: each service has a replica
    };
    let name = SERVICES[RATINGS].name;
    let plain = Client::new(ratings.inbound, name).get("/").await;
    let mut attempts = vec![Attempt::new(
        "plain-text client without identity, to ratings-1",
        PLAINTEXT,
        plain.map(drop),
    )];

    let [admin, listener] = free(Ipv4Addr::LOCALHOST).map_err(Error::system("choose ports"))?;
    let (folder, program) = fleet.room("intruder")?;
    let configuration = intruder(admin, listener, ratings.inbound);
    maglor_config::parse(&configuration, "intruder")?;
    let mut proxy = Sidecar::start(&program, "intruder".into(), &folder, &configuration)?;
    proxy.ready().await?;
    let anonymous = Client::new(listener, name).get("/").await;
    drop(proxy);
    attempts.push(Attempt::new(
        "TLS client without certificate, to ratings-1",
        NO_CERTIFICATE,
        anonymous.map(drop),
    ));

    let member = Client::new(details.outbound, name).get("/").await;
    attempts.push(Attempt::new(
        "unauthorized workload details-1, to ratings",
        DENIED,
        member.map(drop),
    ));
    count(fleet, &mut attempts, flows).await;
    Ok(attempts)
}

/// Waits until the proxies have counted every attempt.
async fn count(fleet: &mut Fleet, attempts: &mut [Attempt], flows: &mut Flows) {
    let mut counted = Flows::new();
    let started = Instant::now();
    loop {
        fleet.look(&mut counted).await;
        for attempt in &mut *attempts {
            attempt.counted = attempt.is_counted(&counted);
        }
        let all = attempts.iter().all(|attempt| attempt.counted);
        if all || started.elapsed() > COUNTED_WITHIN {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    flows.merge(&counted);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_no_refusal_and_counters_are_distinguished() {
        let answered = Attempt::new("a", PLAINTEXT, Ok(()));
        assert!(!answered.refused);
        let denied = Attempt::new("b", DENIED, Err(Failure::Timeout));
        assert!(denied.refused);
        let mut flows = Flows::new();
        flows.refused.insert(PLAINTEXT.into(), 1.0);
        assert!(answered.is_counted(&flows) && !denied.is_counted(&flows));
        flows.denied = 1.0;
        assert!(denied.is_counted(&flows));
    }
}
