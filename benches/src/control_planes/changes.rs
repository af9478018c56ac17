//! Changes of endpoints: the time until a proxy has them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::Kubectl;

use super::plane::ControlPlane;
use super::pods::{NAMESPACE, Pod};
use crate::distribution::api::{Connection, Place};
use crate::error::{Error, Result};
use crate::http;

/// The Service whose endpoints change: `s0`.
const CHANGED: u32 = 0;
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two changes; not a multiple of the usual intervals of controllers.
const PAUSE: Duration = Duration::from_millis(137);
const POLL: Duration = Duration::from_millis(1);

/// Makes an endpoint of the first Service unready and ready again, and measures how long a proxy takes to get each change.
pub(super) async fn measure(
    plane: &dyn ControlPlane,
    kubectl: &Kubectl,
    api: &mut Connection,
    observer: &Pod,
    count: u32,
) -> Result<Vec<Duration>> {
    // From here on, only the harness writes the slice.
    api.take_selector(CHANGED).await?;
    let (place, all) = slice(kubectl)?;
    until(plane, observer, all).await?;
    let mut delays = Vec::new();
    for number in 0..count {
        tokio::time::sleep(PAUSE).await;
        let ready = number % 2 == 1;
        let expected = if ready { all } else { all - 1 };
        let started = Instant::now();
        api.set_in_slice(&place, ready).await?;
        until(plane, observer, expected).await?;
        delays.push(started.elapsed());
    }
    if count % 2 == 1 {
        api.set_in_slice(&place, true).await?;
    }
    let selector = format!(r#"{{"spec":{{"selector":{{"app":"s{CHANGED}"}}}}}}"#);
    let service = format!("service/s{CHANGED}");
    let patch = ["patch", &service, "--namespace", NAMESPACE];
    kubectl.run(&[&patch[..], &["--type=merge", "--patch", &selector]].concat())?;
    Ok(delays)
}

/// Waits until the proxy has this number of endpoints.
async fn until(plane: &dyn ControlPlane, observer: &Pod, expected: u32) -> Result<()> {
    let started = Instant::now();
    let (port, path) = plane.sidecar().metrics;
    let address = SocketAddr::from((observer.ip, port));
    loop {
        let metrics = http::text(address, "GET", path, String::new()).await?;
        let found = plane.endpoints(&metrics);
        if found == Some(expected) {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            let what = format!("{expected} endpoints of the proxy of {}", observer.name);
            return Err(Error::late(what, started, format!("{found:?}")));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Returns the first endpoint of the Service, and the number of all.
fn slice(kubectl: &Kubectl) -> Result<(Place, u32)> {
    let label = format!("kubernetes.io/service-name=s{CHANGED}");
    let get = ["get", "endpointslices", "--namespace", NAMESPACE];
    let list = kubectl.json(&[&get[..], &["--selector", label.as_str()]].concat())?;
    let slice = &list["items"][0];
    let name = slice["metadata"]["name"].as_str();
    let endpoints = slice["endpoints"].as_array().map_or(0, Vec::len);
    match (name, u32::try_from(endpoints)) {
        (Some(name), Ok(count)) if count > 0 => {
            let (slice, at) = (name.to_owned(), 0);
            Ok((Place { slice, at }, count))
        }
        _ => Err(Error::parse("an EndpointSlice", slice.to_string())),
    }
}
