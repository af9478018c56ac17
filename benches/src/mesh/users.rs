//! The clients of a run: an open loop, or a number of users with one request at a time, like the
//! 200 threads of the paper's load generator.
//!
//! A request that is due while all users wait for their answers is sent by the next free user. So
//! the maximum throughput is users × 1 s / latency (Little's law), and a higher load is not
//! sustained.

use std::cell::RefCell;
use std::collections::VecDeque;

use maglor_testkit::app::Caller;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::ports::{self, Block};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Users {
    callers: Vec<Caller>,
    /// The users without a request under way, the longest idle first.
    free: RefCell<VecDeque<usize>>,
    /// One permit for each free user; `None`: a user may have any number of requests under way.
    places: Option<Semaphore>,
}

/// A user, free again when this is dropped.
#[derive(Debug)]
pub(super) struct User<'a> {
    users: &'a Users,
    index: usize,
    place: Option<SemaphorePermit<'a>>,
}

impl Users {
    /// Creates `count` users, each with a separate address; `None` creates a single one with any
    /// number of requests at a time.
    pub(super) fn new(count: Option<u32>) -> Self {
        let Some(count) = count else {
            return Self {
                callers: vec![Caller::default()],
                free: RefCell::default(),
                places: None,
            };
        };
        let all = 0..count as usize;
        Self {
            callers: all
                .clone()
                .map(|index| Caller::at(ports::address(Block::Users, index)))
                .collect(),
            places: Some(Semaphore::new(all.len())),
            free: RefCell::new(all.collect()),
        }
    }

    /// Waits for a free user; the waiting requests are served in order.
    pub(super) async fn take(&self) -> User<'_> {
        let place = match &self.places {
            // The semaphore is never closed.
            Some(places) => places.acquire().await.ok(),
            None => None,
        };
        let index = self.free.borrow_mut().pop_front();
        User {
            users: self,
            index: index.unwrap_or_default(),
            place,
        }
    }

    /// Closes idle connections.
    pub(super) fn close(&self) {
        self.callers.iter().for_each(Caller::close);
    }
}

impl User<'_> {
    pub(super) fn caller(&self) -> &Caller {
        &self.users.callers[self.index]
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        if self.place.is_some() {
            self.users.free.borrow_mut().push_back(self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn users_ask_one_thing_at_a_time() {
        let users = Users::new(Some(2));
        let (first, second) = (users.take().await, users.take().await);
        assert_ne!(first.index, second.index);
        assert!(users.take().now_or_never().is_none());
        let index = second.index;
        drop(second);
        assert_eq!(users.take().await.index, index);
    }

    #[tokio::test]
    async fn without_a_number_no_user_waits() {
        let users = Users::new(None);
        let taken = (users.take().await, users.take().await);
        assert_eq!((taken.0.index, taken.1.index), (0, 0));
    }
}
