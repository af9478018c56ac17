//! Requests that wait for outgoing calls made on their behalf.
//!
//! A sidecar sees both the request that its application processes, and the calls that the application makes for this
//! request. They have the same `x-request-id` if the application propagates it, as for tracing. While a call is in
//! progress the request causes no load on the server, so it does not count as in flight there (see
//! [`maglor_balance::queue_protocol::Inbound`]).
//!
//! Several requests may have the same identifier at the same time, if a service is called twice in one trace. Which
//! of them makes a call is unknown and does not matter, because only their number is used.

use std::fmt::Debug;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::{DefaultHashBuilder, HashMap};
use smallvec::SmallVec;

/// A request at the server behind a listener; not counted while it waits for a call.
pub(crate) trait Suspendable: Debug + Send + Sync {
    /// Marks the request as waiting for a call.
    fn wait(&self);

    /// Marks the request as no longer waiting.
    fn resume(&self);
}

/// Requests of all workers that may make calls.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Number of requests. Proxies without any of them read only this number.
    present: AtomicUsize,
    hasher: DefaultHashBuilder,
    requests: Mutex<HashMap<u64, SmallVec<[Entry; 1]>>>,
}

#[derive(Debug)]
struct Entry {
    request: Arc<dyn Suspendable>,
    /// Number of calls in progress.
    calls: u32,
}

/// Registration of a request that may make calls; removed on drop.
#[derive(Debug)]
pub(crate) struct Present {
    calls: Arc<Calls>,
    id: u64,
    request: Arc<dyn Suspendable>,
}

/// A call in progress; it ends on drop.
#[derive(Debug)]
pub(crate) struct Call {
    calls: Arc<Calls>,
    id: u64,
    request: Arc<dyn Suspendable>,
}

impl Calls {
    /// Registers a request with this identifier.
    pub(crate) fn arrive(self: &Arc<Self>, id: &[u8], request: Arc<dyn Suspendable>) -> Present {
        let id = self.hasher.hash_one(id);
        let entry = Entry {
            request: Arc::clone(&request),
            calls: 0,
        };
        self.requests().entry(id).or_default().push(entry);
        // Relaxed: a call begins long after the request that it is made for.
        self.present.fetch_add(1, Ordering::Relaxed);
        Present {
            calls: Arc::clone(self),
            id,
            request,
        }
    }

    /// Registers a call with this identifier; `None` if no registered request has it.
    pub(crate) fn begin(self: &Arc<Self>, id: &[u8]) -> Option<Call> {
        if self.present.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let id = self.hasher.hash_one(id);
        let mut requests = self.requests();
        let entry = requests
            .get_mut(&id)?
            .iter_mut()
            .min_by_key(|entry| entry.calls)?;
        entry.calls += 1;
        if entry.calls == 1 {
            entry.request.wait();
        }
        Some(Call {
            calls: Arc::clone(self),
            id,
            request: Arc::clone(&entry.request),
        })
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<u64, SmallVec<[Entry; 1]>>> {
        // A panic leaves no partial update.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut requests = self.calls.requests();
        let known = requests.get_mut(&self.id).into_iter().flatten();
        // The request may have ended before the call.
        if let Some(entry) = known.into_iter().find(|entry| entry.is_of(&self.request)) {
            entry.calls -= 1;
            if entry.calls == 0 {
                entry.request.resume();
            }
        }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.calls.present.fetch_sub(1, Ordering::Relaxed);
        let mut requests = self.calls.requests();
        if let Some(entries) = requests.get_mut(&self.id) {
            entries.retain(|entry| !entry.is_of(&self.request));
            if entries.is_empty() {
                requests.remove(&self.id);
            }
        }
    }
}

impl Entry {
    fn is_of(&self, request: &Arc<dyn Suspendable>) -> bool {
        Arc::ptr_eq(&self.request, request)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI32;

    use super::*;

    /// Number of calls for which a request is waiting.
    #[derive(Debug, Default)]
    struct Waits(AtomicI32);

    impl Suspendable for Waits {
        fn wait(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn resume(&self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn waits(request: &Arc<Waits>) -> i32 {
        request.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_request_waits_while_any_of_its_calls_is_under_way() {
        let (calls, request) = (Arc::<Calls>::default(), Arc::<Waits>::default());
        let present = calls.arrive(b"a", Arc::<Waits>::clone(&request));
        assert!(calls.begin(b"b").is_none());
        let (first, second) = (calls.begin(b"a"), calls.begin(b"a"));
        assert_eq!(waits(&request), 1);
        drop(first);
        assert_eq!(waits(&request), 1);
        drop(second);
        assert_eq!(waits(&request), 0);
        let late = calls.begin(b"a");
        drop(present);
        assert!(calls.begin(b"a").is_none());
        drop(late);
        assert!(calls.requests().is_empty(), "nothing is left");
    }

    #[test]
    fn calls_of_one_identifier_are_spread_over_its_requests() {
        let calls = Arc::<Calls>::default();
        let requests: [Arc<Waits>; 2] = Default::default();
        let present = requests
            .each_ref()
            .map(|request| calls.arrive(b"a", Arc::<Waits>::clone(request)));
        let (first, second) = (calls.begin(b"a"), calls.begin(b"a"));
        assert_eq!(requests.each_ref().map(waits), [1, 1]);
        drop((first, second));
        assert_eq!(requests.each_ref().map(waits), [0, 0]);
        drop(present);
    }
}
