//! A client of the control interface of application instances, for threads in the cluster's
//! network.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use maglor_testkit::app::{Counts, Fault};
use serde_json::json;

use super::bookinfo::CONTROL_PORT;
use crate::error::{Doing, Error, Result};

const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the counters of an instance.
///
/// # Errors
/// It does not answer.
pub(super) fn counts(pod: Ipv4Addr) -> Result<Counts> {
    let text = round_trip(pod, "GET", "/counts", "")?;
    let counts: Vec<Counts> = serde_json::from_str(&text)
        .map_err(|error| Error::parse(format!("counts of {pod}"), error.to_string()))?;
    // The other entries are remote services without counters.
    let own = counts
        .into_iter()
        .find(|one| one.listen.ip().is_unspecified());
    own.ok_or_else(|| Error::parse(format!("counts of {pod}"), "nothing runs there"))
}

/// Sets the faults that an instance injects from now on.
///
/// # Errors
/// As [`counts`].
pub(super) fn set_fault(pod: Ipv4Addr, fault: &Fault) -> Result<()> {
    let order = json!({"fault": fault}).to_string();
    round_trip(pod, "PUT", "/faults", &order).map(drop)
}

/// Sends a request and returns the body of the answer.
fn round_trip(pod: Ipv4Addr, method: &str, path: &str, body: &str) -> Result<String> {
    let address = SocketAddr::from((pod, CONTROL_PORT));
    let what = || format!("{method} {path} at {address}");
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).doing(what())?;
    stream.set_read_timeout(Some(PATIENCE)).doing(what())?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: control\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len(),
    );
    stream.write_all(request.as_bytes()).doing(what())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).doing(what())?;
    match text.split_once("\r\n\r\n") {
        Some((head, body))
            if head
                .split(' ')
                .nth(1)
                .is_some_and(|status| status.starts_with('2')) =>
        {
            Ok(body.to_owned())
        }
        _ => Err(Error::parse(what(), text)),
    }
}
