//! The recorded requests of an upstream; shared between its thread and the test.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use http::{HeaderMap, Method, Request, Uri, Version};

use super::{Answer, Upstream};

/// A request with the head as received.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its number at this upstream, from 1.
    pub number: u64,
    /// The number of its connection at this upstream, from 1.
    pub connection: u64,
    /// The peer of this connection.
    pub peer: SocketAddr,
    /// The method.
    pub method: Method,
    /// The request's target; in HTTP/2 with scheme and authority.
    pub uri: Uri,
    /// HTTP/1.0, HTTP/1.1 or HTTP/2.
    pub version: Version,
    /// The header fields.
    pub headers: HeaderMap,
}

impl Recorded {
    /// Returns the value of a header that may occur once.
    ///
    /// # Panics
    ///
    /// If it occurs more than once, or is not text.
    #[must_use]
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        assert!(values.next().is_none(), "{name} came more than once");
        Some(value.to_str().expect("a header of text"))
    }
}

/// Decides about a request before its path does.
pub(super) type Choice = dyn Fn(&Recorded) -> Option<Answer> + Send + Sync;

/// Counters and records of an upstream.
pub(super) struct Shared {
    name: String,
    requests: AtomicU64,
    accepted: AtomicU64,
    open: AtomicU64,
    recorded: Mutex<VecDeque<Recorded>>,
    answer: Mutex<Option<Arc<Choice>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            requests: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            open: AtomicU64::new(0),
            recorded: Mutex::default(),
            answer: Mutex::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(SeqCst)
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(SeqCst)
    }

    pub(super) fn open(&self) -> u64 {
        self.open.load(SeqCst)
    }

    pub(super) fn recorded(&self) -> Vec<Recorded> {
        self.recorded.lock().unwrap().iter().cloned().collect()
    }

    pub(super) fn set_answer(&self, answer: Box<Choice>) {
        *self.answer.lock().unwrap() = Some(answer.into());
    }

    /// Calls the test's own closure.
    pub(super) fn choose(&self, request: &Recorded) -> Option<Answer> {
        let choice = self.answer.lock().unwrap().clone();
        choice.and_then(|choice| choice(request))
    }

    /// Counts a connection.
    pub(super) fn accept(self: &Arc<Self>) -> OpenConnection {
        self.open.fetch_add(1, SeqCst);
        OpenConnection {
            number: self.accepted.fetch_add(1, SeqCst) + 1,
            shared: Arc::clone(self),
        }
    }

    /// Counts and records a request.
    pub(super) fn record<B>(
        &self,
        connection: u64,
        peer: SocketAddr,
        request: &Request<B>,
    ) -> Recorded {
        let recorded = Recorded {
            number: self.requests.fetch_add(1, SeqCst) + 1,
            connection,
            peer,
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            headers: request.headers().clone(),
        };
        let mut all = self.recorded.lock().unwrap();
        if all.len() == Upstream::REMEMBERED {
            all.pop_front();
        }
        all.push_back(recorded.clone());
        recorded
    }
}

/// Counts a connection as open for as long as it exists.
#[derive(Debug)]
pub(super) struct OpenConnection {
    number: u64,
    shared: Arc<Shared>,
}

impl OpenConnection {
    /// Returns the number of the connection, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.shared.open.fetch_sub(1, SeqCst);
    }
}
