//! Where the time of a request went: consecutive parts.

use serde::Serialize;

use super::Story;

/// A part of a request's time.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Waiting for the rest of the response's body from the endpoint.
    Body,
    /// Waiting for the client to read the response.
    Client,
    /// Connecting to the endpoint.
    Connect,
    /// Waiting for the limit of connections.
    ConnectionLimit,
    /// Waiting for the first byte from the endpoint.
    Endpoint,
    /// In attempts before the one that answered.
    FailedAttempts,
    /// In a delay that the route injects.
    Fault,
    /// In the queue of the cluster.
    Queue,
    /// Waiting for the client to send the request's body.
    Upload,
}

/// How long a part took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spent {
    /// The part.
    pub part: Part,
    /// Milliseconds, more than zero.
    pub ms: f64,
}

/// Returns how long each part of a request took, in the order of time, without parts that took no time. What is left to
/// the total was spent in the proxy.
#[must_use]
pub fn spent(story: &Story) -> Vec<Spent> {
    let times = &story.times;
    let mut parts = vec![
        (Part::Fault, times.fault_ms),
        (Part::Queue, times.queued_ms),
    ];
    if let Some(answer) = story.answer() {
        let first = story.attempts.first().unwrap_or(answer);
        let head = times.first_byte_ms.unwrap_or(times.total_ms);
        let room = answer.room_ms.unwrap_or_default();
        let connect = answer.connect_ms.unwrap_or_default();
        let waited = (head - answer.began_ms - room - connect).max(0.0);
        // While the client is still sending, the endpoint cannot answer.
        let upload = times.upload_ms.unwrap_or_default() - answer.began_ms;
        let upload = upload.clamp(0.0, waited);
        parts.extend([
            (Part::FailedAttempts, answer.began_ms - first.began_ms),
            (Part::ConnectionLimit, room),
            (Part::Connect, connect),
            (Part::Upload, upload),
            (Part::Endpoint, waited - upload),
        ]);
    }
    parts.extend([
        (Part::Body, times.body_ms.unwrap_or_default()),
        (Part::Client, times.client_ms.unwrap_or_default()),
    ]);
    let parts = parts.into_iter().filter(|(_, ms)| *ms > 0.0);
    parts.map(|(part, ms)| Spent { part, ms }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Attempt, Times};
    use super::*;

    #[test]
    fn parts_are_consecutive() {
        let attempt = |began_ms, answered| Attempt {
            began_ms,
            answered,
            room_ms: Some(2.0),
            connect_ms: Some(3.0),
            ..Attempt::default()
        };
        let story = Story {
            attempts: vec![attempt(15.0, false), attempt(40.0, true)],
            times: Times {
                fault_ms: 10.0,
                queued_ms: 5.0,
                upload_ms: Some(50.0),
                first_byte_ms: Some(100.0),
                body_ms: Some(7.0),
                client_ms: Some(1.0),
                total_ms: 108.5,
            },
            ..Story::default()
        };
        let parts = spent(&story);
        let expected = [
            (Part::Fault, 10.0),
            (Part::Queue, 5.0),
            (Part::FailedAttempts, 25.0),
            (Part::ConnectionLimit, 2.0),
            (Part::Connect, 3.0),
            (Part::Upload, 10.0),
            (Part::Endpoint, 45.0),
            (Part::Body, 7.0),
            (Part::Client, 1.0),
        ];
        assert_eq!(parts, expected.map(|(part, ms)| Spent { part, ms }));
        let sum: f64 = parts.iter().map(|part| part.ms).sum();
        assert!(sum <= story.times.total_ms);
        assert_eq!(spent(&Story::default()), []);
    }
}
