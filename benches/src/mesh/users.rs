//! The clients of a run: an open loop, or a number of users with one request at a time, like the 200 threads of the
//! paper's load generator.
//!
//! What is due while all users wait for their answers waits for one of them. So users × 1 s / latency is the highest
//! throughput there can be (Little's law), and a load above it is not sustained.

use std::cell::RefCell;
use std::collections::VecDeque;

use maglor_testkit::app::Caller;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::ports::{self, Block};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Users {
    callers: Vec<Caller>,
    /// Those who wait for no answer, the one that has waited longest first.
    free: RefCell<VecDeque<usize>>,
    /// One for each of the free; `None`: a user may ask any number of things at a time.
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
    /// So many, each with an address of its own; `None`: a single one that asks any number of things at a time.
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

    /// Waits for one, in the order in which they are asked for.
    pub(super) async fn take(&self) -> User<'_> {
        let place = match &self.places {
            // It is never closed.
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

    /// Closes what is idle.
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
