//! Which clients have acknowledged which change, and how fast.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::Time;

use super::ChangeId;
use crate::Kind;

/// Changes whose receipts are kept.
const KEPT: usize = 1024;

/// What became of one change.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// Which change.
    pub change: ChangeId,
    /// Of which kind the resource is.
    pub kind: Kind,
    /// Its name.
    pub name: Arc<str>,
    /// When it was made.
    pub made: Time,
    /// Those that it was sent to.
    pub deliveries: Vec<Delivery>,
}

impl Receipt {
    /// Whether everybody who was sent it has it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.deliveries.iter().all(|d| d.outcome.is_some())
    }

    /// How long it took until the last of those who have it had it.
    #[must_use]
    pub fn took(&self) -> Option<Duration> {
        let answered = self.deliveries.iter().filter_map(|d| d.outcome.as_ref());
        let last = answered.map(|(at, _)| *at).max()?;
        Some(last.saturating_since(self.made))
    }
}

/// One client's part of a receipt.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The client's node id.
    pub node: Arc<str>,
    /// When it was sent.
    pub sent: Time,
    /// When the client answered, and why not if it refused; `None` = it has not answered yet.
    pub outcome: Option<(Time, Result<(), Arc<str>>)>,
}

/// Receipts of the last changes.
#[derive(Debug, Default)]
pub struct Receipts(VecDeque<Receipt>);

impl Receipts {
    /// The receipt of a change, while it is kept.
    #[must_use]
    pub fn of(&self, change: ChangeId) -> Option<&Receipt> {
        let at = self
            .0
            .binary_search_by_key(&change, |receipt| receipt.change);
        self.0.get(at.ok()?)
    }

    /// All that are kept, the oldest first.
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

    /// Notes a client's answer; how long after the change was made, where a client that was sent it answers it for
    /// the first time.
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

    /// A client is gone: its acknowledgements are no longer expected.
    pub(super) fn left(&mut self, node: &Arc<str>) {
        for receipt in &mut self.0 {
            let waits = |d: &Delivery| d.outcome.is_none() && d.node == *node;
            receipt.deliveries.retain(|delivery| !waits(delivery));
        }
    }
}
