//! The HTTP control interface of an application, for test harnesses:
//!
//! | request | response |
//! | --- | --- |
//! | `GET /counts` | a list of [`Counts`], one an instance, in the order of the deployment |
//! | `DELETE /counts` | 204; resets the counts |
//! | `PUT /faults` with `{"instance": 3, "fault": {…}}` | 204; without `instance` it applies to all |
//!
//! The error in a request is reported in one line, with 400.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;

use super::deployment::{Deployment, Placed};
use super::fault::Fault;
use super::instance::{Counts, Shared};

/// The instances of all threads.
#[derive(Clone, Debug)]
pub(super) struct Control {
    instances: Arc<[(Placed, Arc<Shared>)]>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    instance: Option<usize>,
    fault: Fault,
}

impl Control {
    pub(super) fn new(deployment: &Deployment) -> Self {
        let instances = deployment.instances.iter();
        let instances = instances.map(|placed| (placed.clone(), Arc::default()));
        Self {
            instances: instances.collect(),
        }
    }

    /// Returns the shared state of the instance at `index` of the deployment.
    pub(super) fn shared(&self, index: usize) -> Option<&Arc<Shared>> {
        self.instances.get(index).map(|(_, shared)| shared)
    }

    pub(super) async fn answer(self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        match (request.method().clone(), request.uri().path()) {
            (Method::GET, "/counts") => {
                let text = serde_json::to_string(&self.counts());
                text.map_or_else(
                    |error| respond(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
                    |text| respond(StatusCode::OK, text),
                )
            }
            (Method::DELETE, "/counts") => {
                for (_, shared) in &*self.instances {
                    shared.reset();
                }
                respond(StatusCode::NO_CONTENT, String::new())
            }
            (Method::PUT, "/faults") => {
                let body = request.into_body().collect().await;
                let body = body.map(http_body_util::Collected::to_bytes);
                let done = body
                    .map_err(|error| error.to_string())
                    .and_then(|body| self.order(&body));
                match done {
                    Ok(()) => respond(StatusCode::NO_CONTENT, String::new()),
                    Err(error) => respond(StatusCode::BAD_REQUEST, error + "\n"),
                }
            }
            _ => respond(StatusCode::NOT_FOUND, String::new()),
        }
    }

    fn counts(&self) -> Vec<Counts> {
        let instances = self.instances.iter();
        instances
            .map(|(placed, shared)| shared.counts(placed))
            .collect()
    }

    fn order(&self, body: &[u8]) -> Result<(), String> {
        let order: Order = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        order.fault.check()?;
        let chosen = match order.instance {
            None => &self.instances[..],
            Some(index) => {
                let one = self.instances.get(index..=index);
                let last = self.instances.len().saturating_sub(1);
                one.ok_or_else(|| format!("instance: {index} is not there; valid: 0-{last}"))?
            }
        };
        for (_, shared) in chosen {
            shared.set_fault(order.fault);
        }
        Ok(())
    }
}

fn respond(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_checked() {
        let placed = |host: &str| Placed {
            host: host.into(),
            listen: ([127, 0, 0, 1], 0).into(),
            outbound: None,
            remote: false,
        };
        let control = Control::new(&Deployment {
            instances: vec![placed("a"), placed("b")],
        });
        control
            .order(br#"{"fault": {"delay_share": 1, "delay_ms": 5}}"#)
            .unwrap();
        control.order(br#"{"instance": 1, "fault": {}}"#).unwrap();
        for (text, needle) in [
            (r#"{"instance": 2, "fault": {}}"#, "valid: 0-1"),
            (r#"{"fault": {"status_share": 3}}"#, "status_share"),
            (r#"{"fault": {"colour": 3}}"#, "colour"),
            ("", "EOF"),
        ] {
            let error = control.order(text.as_bytes()).unwrap_err();
            assert!(error.contains(needle), "{error}");
        }
        assert_eq!(control.counts()[1].host, "b");
    }
}
