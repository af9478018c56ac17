//! EndpointSlices of the namespace `scale`: the positions of pods in them, and their changes in the
//! API server.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use bytes::Buf as _;
use http_body_util::BodyExt as _;
use maglor_testkit::cluster::Kubectl;
use serde_json::Value;

use super::api::{Connection, PORT, Place, spoke};
use super::follower::Board;
use crate::error::{Error, Result};

/// The path of the API server's watch; it ends after an hour.
const WATCH: &str =
    "/apis/discovery.k8s.io/v1/namespaces/scale/endpointslices?watch=true&timeoutSeconds=3600";

/// Returns the position of every pod, by its address.
pub(super) fn places(kubectl: &Kubectl) -> Result<HashMap<String, Place>> {
    let list = ["get", "endpointslices", "--namespace=scale"];
    let list = kubectl.json(&list)?;
    let mut places = HashMap::new();
    for slice in list["items"].as_array().into_iter().flatten() {
        let name = slice["metadata"]["name"].as_str().unwrap_or_default();
        for (at, (address, _)) in endpoints(slice).enumerate() {
            let slice = name.to_owned();
            places.insert(address, Place { slice, at });
        }
    }
    Ok(places)
}

/// Returns the endpoints of a slice, with the port of the application, and whether they are ready.
fn endpoints(slice: &Value) -> impl Iterator<Item = (String, bool)> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    endpoints.map(|endpoint| {
        let address = endpoint["addresses"][0].as_str().unwrap_or_default();
        let ready = endpoint["conditions"]["ready"].as_bool();
        // Absent means yes (discovery/v1).
        (format!("{address}:{PORT}"), ready.unwrap_or(true))
    })
}

/// Records when the API server reports slices.
pub(super) async fn follow(mut connection: Connection, board: Rc<Board>) -> Result<()> {
    let mut body = connection.get(WATCH).await?;
    let mut text = bytes::BytesMut::new();
    while let Some(part) = body.frame().await {
        let Ok(data) = part.map_err(spoke)?.into_data() else {
            continue;
        };
        let now = Instant::now();
        text.extend_from_slice(&data);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line = text.split_to(end);
            text.advance(1);
            let event: Value = serde_json::from_slice(&line)
                .map_err(|error| Error::Protocol(format!("a watch's event: {error}")))?;
            note(&event["object"], &board, now);
        }
    }
    Err(Error::Protocol("the watch has ended".to_owned()))
}

fn note(slice: &Value, board: &Board, now: Instant) {
    let service = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str();
    let service = service.and_then(|name| name.strip_prefix('s')?.parse().ok());
    if let Some(service) = service {
        let ready = endpoints(slice).collect();
        board.ledger.borrow_mut().published(service, &ready, now);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_means_ready() {
        let slice = json!({"endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": false, "serving": true}},
            {"addresses": ["10.0.0.2"], "conditions": {}},
        ]});
        let found: Vec<_> = endpoints(&slice).collect();
        let address = |text: &str| text.to_owned();
        assert_eq!(
            found,
            [
                (address("10.0.0.1:8080"), false),
                (address("10.0.0.2:8080"), true)
            ]
        );
    }
}
