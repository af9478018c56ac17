//! What is noted of one attempt.

use std::fmt::Debug;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::StatusCode;
use maglor_balance::guard::GrpcStatus;
use maglor_config::Address;
use maglor_config::cluster::Cluster;
use maglor_telemetry::trace_context::SpanId;
use tokio::time::Instant;

use super::Moment;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Span;
use crate::protocol::response_flag::ResponseFlag;

/// Maximum number of endpoints that are noted of a choice. A larger cluster has this many of its endpoints in the
/// record, beginning with the chosen one.
const MOST_CANDIDATES: usize = 8;

/// An attempt, in progress or ended.
#[derive(Debug)]
pub(crate) struct Attempted {
    /// `None` without tracing.
    pub(crate) span: Option<SpanId>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) address: Address,
    /// Number of requests in flight there, without this one, when it was chosen.
    pub(crate) queue: u32,
    /// Number of the attempt within its request, from 1.
    pub(crate) number: u32,
    pub(crate) started: Instant,
    /// `None` while it is in progress.
    pub(crate) ended: Option<Instant>,
    /// `None` without a response.
    pub(crate) status: Option<StatusCode>,
    pub(crate) grpc: Option<GrpcStatus>,
    /// Response flag of its error.
    pub(crate) error: Option<ResponseFlag>,
    /// Message of its error.
    pub(crate) message: Option<String>,
    /// Whether the endpoint's proxy has returned the request at once.
    pub(crate) bounced: bool,
    /// Why there was no further attempt, if the policy covers the outcome.
    pub(crate) retry_refused: Option<&'static str>,
    pub(crate) opening: Opening,
    pub(crate) candidates: Candidates,
}

/// Position of an attempt in its request's record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AttemptIndex(
    /// One more than the position: a waiting request holds an `Option` of it, which so takes no more space.
    NonZeroU32,
);

impl AttemptIndex {
    pub(super) fn new(position: usize) -> Self {
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        Self(NonZeroU32::MIN.saturating_add(position))
    }

    pub(crate) fn position(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The beginning of an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun<'a> {
    /// `None` without tracing.
    pub(crate) span: Option<SpanId>,
    pub(crate) cluster: &'a Arc<Cluster>,
    pub(crate) address: &'a Address,
    /// Number of requests in flight there, without this one.
    pub(crate) queue: u32,
    /// Number of the attempt within its request, from 1.
    pub(crate) number: u32,
    pub(crate) started: Instant,
}

/// The endpoints of a cluster.
pub(crate) trait EndpointAddresses: Debug + Send + Sync {
    /// Returns the address of an endpoint by the last 32 bits of its identifier; `None` if it was removed.
    fn address_of(&self, id: u32) -> Option<Address>;
}

impl Attempted {
    /// Notes an error.
    pub(crate) fn fail(&mut self, error: &ProxyError) {
        self.error = Some(error.verdict().flag);
        self.message = Some(error.to_string());
    }
}

/// The opening of a connection for an attempt; nothing for one that is reused.
///
/// Small, since every waiting request reserves the space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// When the attempt found no connection to reuse, after [`epoch`].
    wanted: Moment,
    /// Microseconds from there to its begin and to its end, and one more. More than an hour counts as that.
    begun: Option<NonZeroU32>,
    ended: Option<NonZeroU32>,
}

/// The instant from which the openings of connections are counted.
fn epoch(now: Instant) -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(|| now)
}

impl Opening {
    pub(super) const NONE: Self = Self {
        wanted: Moment::NONE,
        begun: None,
        ended: None,
    };

    /// Returns when the attempt found no connection to reuse; `None` if it has found one.
    pub(crate) fn wanted(&self) -> Option<Instant> {
        let since = self.wanted.since_begin()?;
        Some(epoch(Instant::now()) + since)
    }

    /// Returns when the attempt began to connect, after it had waited for the limits on connections.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.at(self.begun)
    }

    pub(crate) fn ended(&self) -> Option<Instant> {
        self.at(self.ended)
    }

    pub(super) fn want(&mut self, now: Instant) {
        self.wanted = Moment::new(epoch(now), now);
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.begun = self.since_wanted(now);
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.ended = self.since_wanted(now);
    }

    fn since_wanted(&mut self, now: Instant) -> Option<NonZeroU32> {
        if self.wanted.is_none() {
            self.want(now);
        }
        let since = now.saturating_duration_since(self.wanted()?);
        let micros = u32::try_from(since.as_micros()).unwrap_or(u32::MAX);
        NonZeroU32::new(micros.saturating_add(1))
    }

    fn at(&self, micros: Option<NonZeroU32>) -> Option<Instant> {
        let micros = micros?.get() - 1;
        Some(self.wanted()? + Duration::from_micros(micros.into()))
    }
}

impl Default for Opening {
    fn default() -> Self {
        Self::NONE
    }
}

/// A part of a request's text, or none. A span and whether it is there would take half as much again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part(Span);

impl Part {
    /// Begins after its end.
    pub(super) const NONE: Self = Self(Span {
        start: u32::MAX,
        end: 0,
    });

    pub(crate) fn span(self) -> Option<Span> {
        (self.0.start <= self.0.end).then_some(self.0)
    }

    /// Changes the span, if there is one.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Span)) {
        if self.span().is_some() {
            change(&mut self.0);
        }
    }
}

impl From<Option<Span>> for Part {
    fn from(span: Option<Span>) -> Self {
        span.map_or(Self::NONE, Self)
    }
}

/// The endpoints among which a policy has chosen, and the requests in flight at each.
///
/// Small, since every waiting request reserves the space, and most clusters have few endpoints or one.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    chosen: Candidate,
    len: u8,
    /// Number of endpoints of the cluster. Bytes, as of identifiers: a number would be aligned.
    total: [u8; 4],
    /// The others; kept for further requests. `None` if there have been none.
    others: Option<Box<[Candidate; MOST_CANDIDATES - 1]>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    /// The last 32 bits of its identifier, which distinguish the endpoints of a cluster.
    id: [u8; 4],
    /// The largest number stands for larger ones, too.
    in_flight: [u8; 2],
}

impl Candidate {
    fn new((id, in_flight): (u64, u32)) -> Self {
        Self {
            id: (id as u32).to_ne_bytes(),
            in_flight: u16::try_from(in_flight).unwrap_or(u16::MAX).to_ne_bytes(),
        }
    }
}

impl Candidates {
    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.total = [0; 4];
    }

    pub(super) fn set(&mut self, total: usize, mut each: impl Iterator<Item = (u64, u32)>) {
        self.clear();
        self.total = u32::try_from(total).unwrap_or(u32::MAX).to_ne_bytes();
        let Some(chosen) = each.next() else {
            return;
        };
        self.chosen = Candidate::new(chosen);
        self.len = 1;
        let others = self.others.get_or_insert_default();
        for (place, one) in others.iter_mut().zip(each) {
            *place = Candidate::new(one);
            self.len += 1;
        }
    }

    /// Returns the last 32 bits of identifiers of endpoints with their requests in flight, the chosen one first.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u32, u32)> {
        let others = self.others.iter().flat_map(|others| others.iter());
        let all = std::iter::once(&self.chosen).chain(others);
        all.take(self.len.into()).map(|one| {
            let in_flight = u16::from_ne_bytes(one.in_flight);
            (u32::from_ne_bytes(one.id), u32::from(in_flight))
        })
    }

    /// Returns the number of endpoints of the cluster.
    pub(crate) fn total(&self) -> u32 {
        u32::from_ne_bytes(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_noted_in_their_order() {
        let mut candidates = Candidates::default();
        assert_eq!(candidates.each().count(), 0);
        for count in [1, 2, 8, 20, 3] {
            let each = (0..count).map(|at| (7 << 32 | at, 70_000 * u32::from(at == 1) + 5));
            candidates.set(count as usize, each);
            let noted: Vec<_> = candidates.each().collect();
            let expected =
                (0..count.min(8) as u32).map(|at| (at, if at == 1 { 65_535 } else { 5 }));
            assert_eq!(noted, expected.collect::<Vec<_>>());
            assert_eq!(candidates.total(), count as u32);
        }
    }

    #[test]
    fn the_opening_of_a_connection_is_noted_to_the_microsecond() {
        let mut opening = Opening::NONE;
        assert_eq!(opening.wanted(), None);
        let wanted = epoch(Instant::now()) + Duration::from_secs(1);
        let after = |micros| wanted + Duration::from_micros(micros);
        opening.want(wanted);
        opening.begin(after(5));
        opening.end(after(1_000_007));
        assert_eq!(opening.wanted(), Some(wanted));
        assert_eq!(opening.begun(), Some(after(5)));
        assert_eq!(opening.ended(), Some(after(1_000_007)));
    }
}
