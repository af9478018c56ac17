//! Subscribers of a server's load reports.

use std::sync::{Arc, Mutex, PoisonError};

use maglor_balance::Rng;
use maglor_balance::queue_protocol::Announce;
use tokio::sync::mpsc;

use crate::mesh::load_feedback::queue_protocol::Frame;

/// Maximum number of queued messages for a slow reader. Further messages are dropped, since the next report
/// supersedes them.
const BACKLOG: usize = 64;

/// Sends frames to the peer of a channel, from any thread.
#[derive(Clone, Debug)]
pub(super) struct Outbox(mpsc::Sender<Frame>);

impl Outbox {
    pub(super) fn new() -> (Self, mpsc::Receiver<Frame>) {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        (Self(sender), receiver)
    }

    /// Sends a frame; drops it and returns false if the peer does not keep up.
    pub(super) fn send(&self, frame: &Frame) -> bool {
        self.0.try_send(*frame).is_ok()
    }

    pub(super) fn is_open(&self) -> bool {
        !self.0.is_closed()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

/// Balancers with a subscription.
#[derive(Debug, Default)]
pub(super) struct Subscribers(Mutex<Arc<[Listener]>>);

#[derive(Clone, Debug)]
struct Listener {
    overhead: f32,
    outbox: Outbox,
}

impl Subscribers {
    /// Adds a balancer, which is removed when its channel is closed.
    pub(super) fn add(&self, overhead: f32, outbox: &Outbox) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let request = |known: &&Listener| known.outbox.is_open() && !known.outbox.is_same(outbox);
        let new = Listener {
            overhead,
            outbox: outbox.clone(),
        };
        *list = list.iter().filter(request).cloned().chain([new]).collect();
    }

    /// Sends a frame to each subscriber with probability min(overhead / number of subscribers, 1). Returns the number
    /// of frames sent.
    pub(super) fn notify(&self, frame: &Frame, rng: &mut Rng) -> u64 {
        let list = Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        // Balancers of one service have the same configuration; if they differ, the highest overhead applies.
        let overhead = list.iter().map(|one| one.overhead).fold(0.0, f32::max);
        if overhead <= 0.0 {
            return 0;
        }
        let announce = Announce::Balancers {
            overhead: overhead.into(),
        };
        let mut notified = 0;
        announce.choose_balancers(list.len() as u32, rng, |at| {
            let subscriber = list.get(at as usize);
            notified += u64::from(subscriber.is_some_and(|one| one.outbox.send(frame)));
        });
        notified
    }

    /// Sends a frame to all subscribers; returns the number of frames sent.
    pub(super) fn notify_all(&self, frame: &Frame) -> u64 {
        let list = Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let notified = list.iter().filter(|one| one.outbox.send(frame));
        notified.count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_notified_as_often_as_its_share() {
        let subscribers = Subscribers::default();
        let ends: Vec<_> = (0..20)
            .map(|_| {
                let (outbox, end) = Outbox::new();
                subscribers.add(10.0, &outbox);
                (outbox, end)
            })
            .collect();
        let (mut rng, mut notified) = (Rng::seed(7), 0);
        let mut ends = ends;
        for _ in 0..4000 {
            notified += subscribers.notify(&Frame::AskLoad { number: 0 }, &mut rng);
            for (_, end) in &mut ends {
                while end.try_recv().is_ok() {}
            }
        }
        // 20 listeners with probability 1/2 each: mean 40 000, standard deviation 141.
        assert!((39_400..40_600).contains(&notified), "{notified}");
    }

    #[test]
    fn who_has_gone_is_forgotten_and_who_is_slow_is_not_waited_for() {
        let subscribers = Subscribers::default();
        let (slow, mut end) = Outbox::new();
        subscribers.add(100.0, &slow);
        let gone = Outbox::new().0;
        subscribers.add(100.0, &gone);
        subscribers.add(100.0, &slow);
        let mut rng = Rng::seed(1);
        let notified: u64 = (0..100)
            .map(|_| subscribers.notify(&Frame::AskLoad { number: 0 }, &mut rng))
            .sum();
        assert_eq!(
            notified, BACKLOG as u64,
            "one listener, and no more than fits"
        );
        end.close();
        assert_eq!(subscribers.notify_all(&Frame::AskLoad { number: 0 }), 0);
    }
}
