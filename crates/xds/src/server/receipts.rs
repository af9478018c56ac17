//! Records which clients have acknowledged which change, and after what time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::Time;

use super::change::ChangeId;
use crate::Kind;

/// The maximum number of changes whose receipts are kept.
const KEPT: usize = 1024;

/// The deliveries of one change to clients.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The number of the change.
    pub change: ChangeId,
    /// The kind of the changed resource.
    pub kind: Kind,
    /// The name of the changed resource.
    pub name: Arc<str>,
    /// When the change was made.
    pub made: Time,
    /// The deliveries to each client that the change was sent to.
    pub deliveries: Vec<Delivery>,
}

impl Receipt {
    /// Returns whether every client that the change was sent to has acknowledged it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.deliveries.iter().all(|d| d.outcome.is_some())
    }

    /// Returns the time from the change to the last acknowledgement; `None` if there is none.
    #[must_use]
    pub fn took(&self) -> Option<Duration> {
        let answered = self.deliveries.iter().filter_map(|d| d.outcome.as_ref());
        let last = answered.map(|(at, _)| *at).max()?;
        Some(last.saturating_since(self.made))
    }
}

/// The delivery of a change to one client.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The node ID of the client.
    pub node: Arc<str>,
    /// When the change was sent.
    pub sent: Time,
    /// When the client acknowledged the change, or rejected it with a reason; `None` = not yet.
    pub outcome: Option<(Time, Result<(), Arc<str>>)>,
}

/// The receipts of the last changes.
#[derive(Debug, Default)]
pub struct Receipts(VecDeque<Receipt>);

impl Receipts {
    /// Returns the receipt of a change; `None` if it is no longer kept.
    #[must_use]
    pub fn of(&self, change: ChangeId) -> Option<&Receipt> {
        let at = self
            .0
            .binary_search_by_key(&change, |receipt| receipt.change);
        self.0.get(at.ok()?)
    }

    /// Returns all kept receipts, beginning with the oldest.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Receipt> {
        self.0.iter()
    }

    pub(super) fn open(&mut self, change: ChangeId, kind: Kind, name: Arc<str>, made: Time) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Receipt {
            change,
            kind,
            name,
            made,
            deliveries: Vec::new(),
        });
    }

    fn find(&mut self, change: ChangeId) -> Option<&mut Receipt> {
        let at = self
            .0
            .binary_search_by_key(&change, |receipt| receipt.change);
        self.0.get_mut(at.ok()?)
    }

    pub(super) fn sent(&mut self, change: ChangeId, node: &Arc<str>, now: Time) {
        if let Some(receipt) = self.find(change) {
            receipt.deliveries.push(Delivery {
                node: Arc::clone(node),
                sent: now,
                outcome: None,
            });
        }
    }

    /// Records a client's answer. Returns the time since the change was made, if the change was sent to the client and
    /// this is its first answer.
    pub(super) fn answered(
        &mut self,
        change: ChangeId,
        node: &Arc<str>,
        now: Time,
        outcome: &Result<(), Arc<str>>,
    ) -> Option<Duration> {
        let receipt = self.find(change)?;
        let open = |d: &&mut Delivery| d.outcome.is_none() && d.node == *node;
        let delivery = receipt.deliveries.iter_mut().find(open)?;
        delivery.outcome = Some((now, outcome.clone()));
        Some(now.saturating_since(receipt.made))
    }

    /// Removes a client that has disconnected, so that its acknowledgements are no longer expected.
    pub(super) fn left(&mut self, node: &Arc<str>) {
        for receipt in &mut self.0 {
            let waits = |d: &Delivery| d.outcome.is_none() && d.node == *node;
            receipt.deliveries.retain(|delivery| !waits(delivery));
        }
    }
}
