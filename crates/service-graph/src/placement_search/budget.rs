//! The budget of a search. It is counted in steps and not timed, so that the same input and seed lead to the same
//! placement on every machine.

/// The remaining number of steps. A step is the evaluation of one neighbour of a service, which takes 2–6 ns.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    left: u64,
}

impl Budget {
    pub(crate) fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Spends steps; returns false when none remain.
    pub(crate) fn spend(&mut self, steps: usize) -> bool {
        self.left = self.left.saturating_sub(steps as u64);
        self.left > 0
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Splits off a part of the remaining steps. [`Budget::release`] returns those that were not used.
    pub(crate) fn take(&mut self, steps: u64) -> Self {
        let steps = steps.min(self.left);
        self.left -= steps;
        Self { left: steps }
    }

    pub(crate) fn release(&mut self, part: &Self) {
        self.left += part.left;
    }
}
