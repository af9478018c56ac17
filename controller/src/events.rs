//! Events (`events.k8s.io/v1`) about rejections, attached to the objects concerned.
//!
//! Reporting never blocks: the queue is short, and events that do not fit appear only in the log and the metrics. An
//! object gets at most one event per reason in ten seconds; kube's recorder counts repetitions within six minutes in
//! the existing event. Each replica reports its own rejections.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Maximum number of events that wait to be written.
const QUEUE: usize = 64;
/// Minimum time between two events with the same reason about one object.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of objects whose last event is remembered. Further objects get events only when some of these
/// events are old.
const REMEMBERED: usize = 1024;
/// Maximum length of a note in Kubernetes.
const LONGEST_NOTE: usize = 1024;

type Receiver = mpsc::Receiver<(ObjectReference, Event)>;

/// A handle for reporting events; clones share the queue.
#[derive(Clone, Debug)]
pub struct Events(mpsc::Sender<(ObjectReference, Event)>);

impl Events {
    /// Writes events as long as a handle exists. `controller` is the reporter, such as `maglor.dev/webhook`;
    /// `replica` is the reporting instance.
    #[must_use]
    pub fn new(client: Client, controller: &str, replica: &str) -> Self {
        let reporter = Reporter {
            controller: controller.to_owned(),
            instance: Some(replica.to_owned()),
        };
        let (sender, reported) = mpsc::channel(QUEUE);
        tokio::spawn(kept_up(Recorder::new(client, reporter), reported));
        Self(sender)
    }

    /// Reports a warning about an object, unless the queue is full.
    pub fn warn(&self, about: ObjectReference, reason: &str, action: &str, note: &str) {
        self.publish(EventType::Warning, about, (reason, action), note);
    }

    /// Reports a normal event, unless the queue is full.
    pub fn report(&self, about: ObjectReference, reason: &str, action: &str, note: &str) {
        self.publish(EventType::Normal, about, (reason, action), note);
    }

    fn publish(
        &self,
        type_: EventType,
        about: ObjectReference,
        (reason, action): (&str, &str),
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(shortened(note)),
            action: action.to_owned(),
            secondary: None,
        };
        let _ = self.0.try_send((about, event));
    }
}

fn shortened(note: &str) -> String {
    let end = (0..=LONGEST_NOTE.min(note.len())).rev();
    let end = end.into_iter().find(|at| note.is_char_boundary(*at));
    note[..end.unwrap_or(0)].to_owned()
}

/// Writes events until all senders are dropped. A panic is logged and counted, and writing continues with the next
/// event.
async fn kept_up(recorder: Recorder, mut reported: Receiver) {
    while AssertUnwindSafe(write(&recorder, &mut reported))
        .catch_unwind()
        .await
        .is_err()
    {}
}

async fn write(recorder: &Recorder, reported: &mut Receiver) {
    let mut pauses = Pauses::default();
    while let Some((about, event)) = reported.recv().await {
        if !pauses.admit(&about, &event.reason, Instant::now()) {
            continue;
        }
        if let Err(error) = recorder.publish(&event, &about).await {
            tracing::debug!(%error, reason = event.reason, "event not written");
        }
    }
}

/// Times of recent events.
#[derive(Debug, Default)]
struct Pauses(HashMap<String, Instant>);

impl Pauses {
    fn admit(&mut self, about: &ObjectReference, reason: &str, now: Instant) -> bool {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, last| now.duration_since(*last) < PAUSE);
        }
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let parts = [&about.kind, &about.namespace, &about.name].map(text);
        let key = format!("{}/{reason}", parts.join("/"));
        match self.0.get(&key) {
            Some(last) if now.duration_since(*last) < PAUSE => false,
            None if self.0.len() >= REMEMBERED => false,
            _ => {
                self.0.insert(key, now);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> ObjectReference {
        ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some("shop".to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        }
    }

    #[test]
    fn one_event_of_a_reason_about_a_resource_at_a_time() {
        let (mut pauses, start) = (Pauses::default(), Instant::now());
        assert!(pauses.admit(&pod("a"), "Refused", start));
        assert!(!pauses.admit(&pod("a"), "Refused", start + PAUSE / 2));
        assert!(pauses.admit(&pod("a"), "Skipped", start));
        assert!(pauses.admit(&pod("b"), "Refused", start));
        assert!(pauses.admit(&pod("a"), "Refused", start + PAUSE));
        for at in 0..2 * REMEMBERED {
            pauses.admit(&pod(&at.to_string()), "Refused", start + PAUSE);
        }
        assert!(pauses.0.len() <= REMEMBERED);
        assert!(pauses.admit(&pod("a"), "Refused", start + 2 * PAUSE));
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        let long = "ä".repeat(LONGEST_NOTE);
        assert_eq!(shortened(&long).len(), LONGEST_NOTE);
        assert_eq!(shortened(&format!("a{long}")).len(), LONGEST_NOTE - 1);
        assert_eq!(shortened("short"), "short");
    }
}
