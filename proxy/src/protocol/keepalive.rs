//! Detection of a peer that is gone although its connection is open: a silent peer is sent a PING.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Number of intervals without a received byte after which a PING is sent; the response must arrive within one more
/// interval.
const ASK: u8 = 3;

/// Next step of the keepalive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KeepaliveStep {
    /// Send a PING.
    SendPing,
    /// The peer has not responded within one interval.
    Dead,
}

/// Detects a peer that no longer responds.
#[derive(Debug)]
pub(crate) struct Keepalive {
    interval: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    silent: u8,
}

impl Keepalive {
    /// Creates a keepalive with intervals of this length.
    pub(crate) fn every(interval: Duration) -> Self {
        Self {
            interval,
            sleep: None,
            silent: 0,
        }
    }

    /// Records that data was received.
    pub(crate) fn received(&mut self) {
        self.silent = 0;
    }

    /// Returns the next step when it is due; polled with the connection. `busy` is whether there are streams.
    pub(crate) fn poll(&mut self, busy: bool, cx: &mut Context<'_>) -> Poll<KeepaliveStep> {
        loop {
            let Some(sleep) = &mut self.sleep else {
                if !busy {
                    return Poll::Pending;
                }
                self.silent = 0;
                self.sleep = Some(Box::pin(tokio::time::sleep(self.interval)));
                continue;
            };
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if !busy {
                self.sleep = None;
                return Poll::Pending;
            }
            sleep.as_mut().reset(Instant::now() + self.interval);
            self.silent += 1;
            if self.silent > ASK {
                return Poll::Ready(KeepaliveStep::Dead);
            }
            if self.silent == ASK {
                return Poll::Ready(KeepaliveStep::SendPing);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_is_asked_once_and_then_dead() {
        let mut keepalive = Keepalive::every(INTERVAL);
        let start = Instant::now();
        assert_eq!(
            poll_fn(|cx| keepalive.poll(true, cx)).await,
            KeepaliveStep::SendPing
        );
        assert_eq!(start.elapsed().as_secs(), 30);
        assert_eq!(
            poll_fn(|cx| keepalive.poll(true, cx)).await,
            KeepaliveStep::Dead
        );
        assert_eq!(start.elapsed().as_secs(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_says_something_is_alive() {
        let mut keepalive = Keepalive::every(INTERVAL);
        for _ in 0..3 {
            assert_eq!(
                poll_fn(|cx| keepalive.poll(true, cx)).await,
                KeepaliveStep::SendPing
            );
            keepalive.received();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_ping_is_sent_without_streams() {
        let mut keepalive = Keepalive::every(INTERVAL);
        let asked = tokio::time::timeout(INTERVAL * 10, poll_fn(|cx| keepalive.poll(false, cx)));
        assert!(asked.await.is_err());
    }
}
