//! Checks that a proxy does the work that all others do, before anything is measured.

use std::thread;
use std::time::{Duration, Instant};

use super::Subject;
use super::running::{Running, get};
use crate::error::{Error, Result};
use crate::scenario::Protocol;

const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// With any address: Envoy adds the host's own address when a client connects from loopback.
const FORWARDED_FOR: &str = "X-Forwarded-For";
/// The identity that linkerd2-proxy has verified by mutual TLS.
const CLIENT_ID: &str = "L5d-Client-Id";

impl Running {
    /// Checks once that the proxy does the work that all proxies do, except for the bare forwarder,
    /// which does not by design.
    pub(crate) fn verify(&self) -> Result<()> {
        if self.subject == Subject::Bare {
            return Ok(());
        }
        equal_work(self)
    }
}

/// Checks that a request reaches the origin over HTTP/1.1 keep-alive, with `X-Forwarded-For` or, for linkerd2-proxy,
/// the verified identity of the client, and that metrics are enabled.
fn equal_work(running: &Running) -> Result<()> {
    let unequal = |detail: String| Error::Unequal {
        name: running.subject.to_string(),
        detail,
    };
    let echo = get(running.address(Protocol::H1), "/echo")?;
    let Some((_, seen)) = echo.split_once("\r\n\r\n") else {
        return Err(unequal("no echo".into()));
    };
    check_request(seen).map_err(unequal)?;
    match running.subject {
        Subject::Linkerd if running.is_pair() => contains(seen, CLIENT_ID).map_err(unequal)?,
        // It appends no X-Forwarded-For, by design.
        Subject::Linkerd => {}
        _ => contains(seen, FORWARDED_FOR).map_err(unequal)?,
    }
    metrics(running).map_err(|error| unequal(format!("no metrics: {error}")))
}

/// Checks the metrics; some proxies open this port a moment after they have begun to serve.
fn metrics(running: &Running) -> Result<()> {
    let begin = Instant::now();
    loop {
        let got = get(running.admin, "/metrics").or_else(|_| get(running.admin, "/stats"));
        if got.is_ok() || begin.elapsed() > PATIENCE {
            return got.map(|_| ());
        }
        thread::sleep(POLL);
    }
}

fn check_request(head: &str) -> std::result::Result<(), String> {
    let lower = head.to_ascii_lowercase();
    if !lower.starts_with("get /echo http/1.1") {
        return Err(format!("request line of {head:?}"));
    }
    if lower.contains("\r\nconnection: close") {
        return Err("no keep-alive to the origin".into());
    }
    Ok(())
}

fn contains(head: &str, name: &str) -> std::result::Result<(), String> {
    let field = format!("\r\n{}: ", name.to_ascii_lowercase());
    match head.to_ascii_lowercase().contains(&field) {
        true => Ok(()),
        false => Err(format!("no {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_judged() {
        let good = "GET /echo HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 127.0.0.1\r\n";
        assert_eq!(check_request(good), Ok(()));
        assert_eq!(contains(good, FORWARDED_FOR), Ok(()));
        assert!(contains(good, CLIENT_ID).is_err());
        assert!(check_request(&format!("{good}Connection: close\r\n")).is_err());
        assert!(check_request("GET /echo HTTP/1.0\r\n").is_err());
    }
}
