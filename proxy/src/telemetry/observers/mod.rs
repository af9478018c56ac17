//! Observers of finished requests: the access log, taps, the export of spans, and stories.
//!
//! A tap is `GET /tap` on the admin port: a stream of request summaries, one per line. Without observers, the
//! cost for a request is a single check ([`Observers::readers`]). Memory is bounded: a tap buffers at most
//! [`WAITING`] lines of [`WAITING_BYTES`] in total, and the next line after this contains the number of dropped ones.

mod filter;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use http_body::{Body, Frame};
use maglor_balance::Time;
use maglor_balance::guard::rate::TokenBucket;
use tokio::sync::mpsc::{Receiver, Sender, channel};

pub(crate) use self::filter::TapError;
use self::filter::Wanted;
use crate::os::memory::Budget;
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::StoryMetrics;
use crate::telemetry::record::Entry;
use crate::telemetry::stories::Stories;
use crate::telemetry::traces::Tracer;

/// Maximum number of taps. Each tap formats a line for every request that it matches.
const MOST: usize = 8;
/// Maximum number of buffered lines of a tap.
const WAITING: usize = 256;
/// Maximum number of buffered bytes of a tap. The last line may exceed it, since a path may be as long as a request
/// head.
const WAITING_BYTES: usize = 128 * 1024;

/// The observers of requests.
#[derive(Debug)]
pub(crate) struct Observers {
    /// The bits of [`Readers`].
    readers: AtomicU8,
    access_log: ArcSwapOption<AccessLog>,
    tracer: ArcSwapOption<Tracer>,
    taps: ArcSwap<Vec<Arc<Tap>>>,
    pub(crate) stories: Stories,
}

/// Who reads the record of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readers(u8);

impl Readers {
    const LINES: u8 = 1;
    const STORIES: u8 = 2;
    const TRACES: u8 = 4;

    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }

    /// Returns whether the access log or a tap gets a line for each request.
    pub(crate) fn lines(self) -> bool {
        self.0 & Self::LINES != 0
    }

    pub(crate) fn stories(self) -> bool {
        self.0 & Self::STORIES != 0
    }

    /// Returns the same without stories.
    pub(crate) fn without_stories(self) -> Self {
        Self(self.0 & !Self::STORIES)
    }

    /// Returns the same without the export of spans.
    pub(crate) fn without_traces(self) -> Self {
        Self(self.0 & !Self::TRACES)
    }

    pub(crate) fn traces(self) -> bool {
        self.0 & Self::TRACES != 0
    }
}

#[derive(Debug)]
struct Tap {
    wanted: Wanted,
    rate: TokenBucket,
    lines: Sender<Bytes>,
    /// Number of buffered bytes.
    waiting: AtomicUsize,
    /// Number of matching requests dropped since the last line.
    missed: AtomicU64,
}

impl Observers {
    /// Creates the observers of this many workers: none yet.
    pub(crate) fn new(workers: usize, metrics: Arc<StoryMetrics>) -> Self {
        Self {
            readers: AtomicU8::new(0),
            access_log: ArcSwapOption::default(),
            tracer: ArcSwapOption::default(),
            taps: ArcSwap::default(),
            stories: Stories::new(workers, metrics),
        }
    }

    /// Returns who reads the record of a request that begins now.
    pub(crate) fn readers(&self) -> Readers {
        // Relaxed: a new tap may miss a request.
        Readers(self.readers.load(Ordering::Relaxed))
    }

    /// Begins or ends to keep stories. Control thread only.
    pub(crate) fn set_stories(&self, is_on: bool) {
        self.stories.set(is_on);
        self.count();
    }

    pub(crate) fn access_log(&self) -> Option<Arc<AccessLog>> {
        self.access_log.load_full()
    }

    /// Sets the access log. Control thread only.
    pub(crate) fn set_access_log(&self, log: Option<Arc<AccessLog>>) {
        self.access_log.store(log);
        self.count();
    }

    pub(crate) fn tracer(&self) -> Option<Arc<Tracer>> {
        self.tracer.load_full()
    }

    /// Calls a function with the tracer of new requests, if there is one.
    #[inline]
    pub(crate) fn with_tracer<R>(&self, f: impl FnOnce(&Arc<Tracer>) -> Option<R>) -> Option<R> {
        (*self.tracer.load()).as_ref().and_then(f)
    }

    /// Sets the tracer of new requests. Control thread only.
    pub(crate) fn set_tracer(&self, tracer: Option<Arc<Tracer>>) {
        self.tracer.store(tracer);
        self.count();
    }

    fn count(&self) {
        let lines = self.access_log.load().is_some() || !self.taps.load().is_empty();
        let bits = [
            (lines, Readers::LINES),
            (self.stories.is_on(), Readers::STORIES),
            (self.tracer.load().is_some(), Readers::TRACES),
        ];
        let bits = bits.iter().filter(|(is_on, _)| *is_on);
        let readers = bits.fold(0, |all, (_, bit)| all | bit);
        self.readers.store(readers, Ordering::Relaxed);
    }

    /// Notifies the access log and the taps of a finished request.
    pub(crate) fn notify(&self, entry: &Entry<'_>, now: Time) {
        if let Some(log) = &*self.access_log.load() {
            log.write(entry);
        }
        for tap in self.taps.load().iter() {
            tap.notify(entry, now);
        }
    }

    /// Opens a tap with the filter of a query; it ends when the returned lines are dropped. Control thread
    /// only. The buffered lines are charged to `memory`.
    ///
    /// # Errors
    /// If the query is invalid, or there are too many taps.
    pub(crate) fn tap(
        self: &Arc<Self>,
        query: Option<&str>,
        memory: &Arc<Budget>,
    ) -> Result<Lines, TapError> {
        let (wanted, rate) = Wanted::read(query.unwrap_or_default())?;
        let mut taps = Vec::clone(&self.taps.load());
        if taps.len() >= MOST {
            return Err(TapError::TooMany { most: MOST });
        }
        let (lines, receiver) = channel(WAITING);
        let tap = Arc::new(Tap {
            wanted,
            rate: TokenBucket::new(rate),
            lines,
            waiting: AtomicUsize::new(0),
            missed: AtomicU64::new(0),
        });
        taps.push(Arc::clone(&tap));
        self.taps.store(Arc::new(taps));
        self.count();
        Ok(Lines {
            receiver,
            tap,
            of: Arc::clone(self),
            memory: Arc::clone(memory),
        })
    }

    fn forget(&self, tap: &Arc<Tap>) {
        let mut taps = Vec::clone(&self.taps.load());
        taps.retain(|one| !Arc::ptr_eq(one, tap));
        self.taps.store(Arc::new(taps));
        self.count();
    }
}

impl Tap {
    fn notify(&self, entry: &Entry<'_>, now: Time) {
        if !self.wanted.takes(entry) {
            return;
        }
        let Some(place) = self.place(now) else {
            // Relaxed, here and below: the number is only informative.
            self.missed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut line = entry.describe();
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            line["missed"] = missed.into();
        }
        let line = Bytes::from(format!("{line}\n"));
        self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        place.send(line);
    }

    fn place(&self, now: Time) -> Option<tokio::sync::mpsc::Permit<'_, Bytes>> {
        // Relaxed: two workers may both add a line at the same moment.
        if self.waiting.load(Ordering::Relaxed) >= WAITING_BYTES {
            return None;
        }
        let place = self.lines.try_reserve().ok()?;
        self.rate.take(now).allowed.then_some(place)
    }
}

/// Lines of a tap, as an endless body.
#[derive(Debug)]
pub(crate) struct Lines {
    receiver: Receiver<Bytes>,
    tap: Arc<Tap>,
    of: Arc<Observers>,
    memory: Arc<Budget>,
}

impl Body for Lines {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        // Workers allocate the lines and this thread frees them. Until both heaps are published, the freed memory
        // counts as in use.
        self.memory.publish_control();
        let line = self.receiver.poll_recv(cx);
        if let Poll::Ready(Some(line)) = &line {
            self.tap.waiting.fetch_sub(line.len(), Ordering::Relaxed);
        }
        line.map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.of.forget(&self.tap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Arc<Budget> {
        Arc::new(Budget::new(
            crate::telemetry::metrics::Metrics::new(1).memory(),
            1,
        ))
    }

    fn observers() -> Arc<Observers> {
        let metrics = crate::telemetry::metrics::Metrics::new(1);
        Arc::new(Observers::new(1, Arc::clone(&metrics.stories)))
    }

    fn notify(observers: &Observers, now: Time) {
        let entry = Entry::example("GET", "/api/cart?x=1");
        observers.notify(&entry, now);
    }

    #[test]
    fn a_tap_lives_as_long_as_its_reader() {
        let observers = observers();
        assert!(!observers.readers().lines());
        let lines = observers.tap(None, &memory()).unwrap();
        assert!(observers.readers().lines());
        drop(lines);
        assert!(!observers.readers().lines());
        let held: Vec<_> = (0..MOST)
            .map(|_| observers.tap(None, &memory()).unwrap())
            .collect();
        assert!(matches!(
            observers.tap(None, &memory()),
            Err(TapError::TooMany { most: MOST })
        ));
        drop(held);
        assert!(observers.tap(None, &memory()).is_ok());
    }

    #[test]
    fn a_slow_reader_misses_lines_and_learns_how_many() {
        let observers = observers();
        let mut lines = observers.tap(Some("rate=1000000"), &memory()).unwrap();
        for _ in 0..WAITING + 3 {
            notify(&observers, Time::ZERO);
        }
        for _ in 0..WAITING {
            let line = lines.receiver.try_recv().unwrap();
            assert!(!line.windows(6).any(|part| part == b"missed"));
        }
        assert!(lines.receiver.try_recv().is_err());
        notify(&observers, Time::ZERO);
        let line = lines.receiver.try_recv().unwrap();
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line["missed"], 3);
        assert_eq!(line["target"], "/api/cart?x=1");
    }

    #[test]
    fn long_lines_are_bounded_by_their_bytes() {
        let observers = observers();
        let mut lines = observers.tap(Some("rate=1000000"), &memory()).unwrap();
        let entry = Entry::example("GET", &format!("/{}", "x".repeat(60_000)));
        let notify = || observers.notify(&entry, Time::ZERO);
        (0..WAITING).for_each(|_| notify());
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let mut read = || match Pin::new(&mut lines).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => frame.data_ref().map(Bytes::len),
            _ => None,
        };
        let waited: Vec<_> = std::iter::from_fn(&mut read).collect();
        assert_eq!(waited.len(), 3, "the last one begins below the limit");
        assert!(waited.iter().sum::<usize>() < WAITING_BYTES + 70_000);
        // There is room again after lines were read.
        notify();
        assert!(read().is_some());
    }

    #[test]
    fn a_rate_bounds_the_lines_of_a_second() {
        let observers = observers();
        let mut lines = observers.tap(Some("rate=2"), &memory()).unwrap();
        for second in 0..3 {
            for _ in 0..10 {
                notify(&observers, Time::from_nanos(second * 1_000_000_000));
            }
        }
        let mut count = 0;
        while lines.receiver.try_recv().is_ok() {
            count += 1;
        }
        assert_eq!(count, 6);
    }
}
