//! A client of the control interface of application instances, for threads in the cluster's
//! network.

use std::net::Ipv4Addr;
use std::time::Duration;

use maglor_testkit::app::{Counts, Fault};
use serde_json::json;

use super::bookinfo::CONTROL_PORT;
use crate::error::{Error, Result};
use crate::http;

const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the counters of an instance.
pub(super) fn counts(pod: Ipv4Addr) -> Result<Counts> {
    let text = request(pod, "GET", "/counts", String::new())?;
    let counts: Vec<Counts> = serde_json::from_str(&text)
        .map_err(|error| Error::parse(format!("counts of {pod}"), error.to_string()))?;
    // The other entries are remote services without counters.
    let own = counts
        .into_iter()
        .find(|one| one.listen.ip().is_unspecified());
    own.ok_or_else(|| Error::parse(format!("counts of {pod}"), "nothing runs there"))
}

/// Sets the faults that an instance injects from now on.
pub(super) fn set_fault(pod: Ipv4Addr, fault: &Fault) -> Result<()> {
    let order = json!({"fault": fault}).to_string();
    request(pod, "PUT", "/faults", order).map(drop)
}

fn request(pod: Ipv4Addr, method: &str, path: &str, body: String) -> Result<String> {
    let answer = http::text((pod, CONTROL_PORT).into(), method, path, body);
    http::block_on(async {
        let late = |_| Error::protocol(format!("{method} {path} of {pod}: no answer"));
        tokio::time::timeout(PATIENCE, answer).await.map_err(late)?
    })
}
