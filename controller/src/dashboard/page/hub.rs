//! Documents that several viewers follow are computed once, at most once a second.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use crate::dashboard::page::documents::{self, When};
use crate::dashboard::page::graph_layout::Layouts;
use crate::dashboard::page::history::{FINE, History};
use crate::dashboard::page::merge_patch;
use crate::dashboard::page::model::{Mesh, Source, View};

/// Interval of the patches.
const INTERVAL: Duration = Duration::from_secs(1);
/// A document is computed again if it is older than this.
const FRESH: Duration = Duration::from_millis(700);
/// A document that is not requested for this long is dropped.
const UNUSED: Duration = Duration::from_secs(10);
/// Maximum number of streams.
pub(crate) const MOST_STREAMS: usize = 64;
/// Maximum number of documents that are kept.
const MOST_DOCUMENTS: usize = 64;

/// A document that can be followed.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Topic {
    Decisions,
    Mesh(View),
    Receipts,
    Service(String),
}

/// A document at one time.
#[derive(Debug)]
pub(crate) struct Document {
    value: Value,
    /// The document as text.
    pub(crate) text: Bytes,
    /// A hash of the text.
    pub(crate) hash: String,
}

impl Document {
    pub(crate) fn new(value: Value) -> Self {
        let text = value.to_string();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self {
            value,
            text: text.into(),
            hash: format!("{:016x}", hasher.finish()),
        }
    }
}

struct Entry {
    computed: Instant,
    used: Instant,
    document: Arc<Document>,
    /// The preceding document, and the event that turns it into this one.
    previous: Option<(Arc<Document>, Bytes)>,
}

/// The documents, the history, and the number of streams.
pub(crate) struct Hub {
    pub(crate) source: Arc<dyn Source>,
    history: Mutex<History>,
    layouts: Mutex<HashMap<View, Layouts>>,
    past_layout: Mutex<Layouts>,
    entries: Mutex<HashMap<Topic, Entry>>,
    ticks: watch::Sender<()>,
    streams: AtomicUsize,
}

/// A stream that counts until it is dropped.
pub(crate) struct Stream(Arc<Hub>);

impl Drop for Stream {
    fn drop(&mut self) {
        // Relaxed: no other data depends on it.
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Hub {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            history: Mutex::default(),
            layouts: Mutex::default(),
            past_layout: Mutex::default(),
            entries: Mutex::default(),
            ticks: watch::channel(()).0,
            streams: AtomicUsize::new(0),
        }
    }

    /// Wakes the streams, and records the history; never returns.
    pub(crate) async fn run(&self) {
        let mut tick = tokio::time::interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut recorded = None;
        loop {
            tick.tick().await;
            let watched = self.streams() > 0;
            self.source.set_watched(watched);
            let now = seconds() as u64;
            let slot = now - now % FINE.0;
            if recorded != Some(slot) {
                recorded = Some(slot);
                self.history()
                    .record(slot, &self.source.mesh(View::Service));
            }
            let forget = |entry: &Entry| entry.used.elapsed() < UNUSED;
            locked(&self.entries).retain(|_, entry| forget(entry));
            if watched {
                self.ticks.send_replace(());
            }
        }
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        locked(&self.history)
    }

    /// Returns the number of open streams.
    pub(crate) fn streams(&self) -> usize {
        // Relaxed: no other data depends on it.
        self.streams.load(Ordering::Relaxed)
    }

    /// Opens a stream; `None` if there are too many.
    pub(crate) fn open_stream(self: &Arc<Self>) -> Option<Stream> {
        // Relaxed: no other data depends on it.
        let before = self.streams.fetch_add(1, Ordering::Relaxed);
        // Decrements the count also if it is too large.
        let stream = Stream(Arc::clone(self));
        (before < MOST_STREAMS).then_some(stream)
    }

    /// Returns a receiver that changes when documents may have changed.
    pub(crate) fn ticks(&self) -> watch::Receiver<()> {
        self.ticks.subscribe()
    }

    /// Returns a document; `None` if it is that of an unknown service.
    pub(crate) fn document(&self, topic: &Topic) -> Option<Arc<Document>> {
        let now = Instant::now();
        // The lock is held while the document is computed, so that concurrent requests compute it once.
        let mut entries = locked(&self.entries);
        if let Some(entry) = entries.get_mut(topic) {
            entry.used = now;
            if now - entry.computed < FRESH {
                return Some(Arc::clone(&entry.document));
            }
        }
        let Some(value) = self.compute(topic) else {
            entries.remove(topic);
            return None;
        };
        let document = Arc::new(Document::new(value));
        let previous = entries.remove(topic).map(|entry| {
            let patch = event(&entry.document, &document);
            (entry.document, patch)
        });
        if entries.len() >= MOST_DOCUMENTS {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.used);
            let oldest = oldest.map(|(topic, _)| topic.clone());
            oldest.and_then(|topic| entries.remove(&topic));
        }
        let entry = Entry {
            computed: now,
            used: now,
            document: Arc::clone(&document),
            previous,
        };
        entries.insert(topic.clone(), entry);
        Some(document)
    }

    /// Returns the event that turns `old` into `new`; empty if they are equal.
    pub(crate) fn patch(&self, topic: &Topic, old: &Arc<Document>, new: &Arc<Document>) -> Bytes {
        let entries = locked(&self.entries);
        let ready = entries.get(topic).and_then(|entry| {
            let (previous, patch) = entry.previous.as_ref()?;
            let same = Arc::ptr_eq(previous, old) && Arc::ptr_eq(&entry.document, new);
            same.then(|| patch.clone())
        });
        drop(entries);
        // A viewer that missed a document gets a patch of its own.
        ready.unwrap_or_else(|| event(old, new))
    }

    fn compute(&self, topic: &Topic) -> Option<Value> {
        let when = When {
            at: seconds(),
            past: false,
        };
        Some(match topic {
            Topic::Decisions => documents::list("decisions", self.source.decisions(), when),
            Topic::Mesh(view) => {
                let mesh = self.source.mesh(*view);
                let mut layouts = locked(&self.layouts);
                let layouts = layouts.entry(*view).or_default();
                documents::mesh(&mesh, *view, layouts.of(&mesh, when.at as u64), when)
            }
            Topic::Receipts => documents::list("changes", self.source.receipts(), when),
            Topic::Service(name) => {
                let mesh = self.source.mesh(View::Service);
                let details = self.source.details(name);
                documents::service(name, &mesh, details.as_ref(), when)?
            }
        })
    }

    /// Returns the graph or a service at a time in the past; `None` if there is no history or no such service.
    pub(crate) fn past(&self, topic: &Topic, time: u64) -> Option<Value> {
        let (at, mesh): (u64, Mesh) = self.history().at(time)?;
        let when = When {
            at: at as f64,
            past: true,
        };
        match topic {
            Topic::Service(name) => documents::service(name, &mesh, None, when),
            _ => {
                let mut layout = locked(&self.past_layout);
                let places = layout.of(&mesh, at);
                Some(documents::mesh(&mesh, View::Service, places, when))
            }
        }
    }
}

/// Returns the event that turns a document into another one; empty if they are equal.
fn event(old: &Document, new: &Document) -> Bytes {
    match merge_patch::difference(&old.value, &new.value) {
        Some(patch) => format!("event: patch\ndata: {patch}\n\n").into(),
        None => Bytes::new(),
    }
}

/// Returns the event with the whole document.
pub(crate) fn snapshot(document: &Document) -> Bytes {
    let mut event = Vec::with_capacity(document.text.len() + 32);
    event.extend_from_slice(b"event: snapshot\ndata: ");
    event.extend_from_slice(&document.text);
    event.extend_from_slice(b"\n\n");
    event.into()
}

/// Returns the time in Unix seconds.
pub(crate) fn seconds() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
