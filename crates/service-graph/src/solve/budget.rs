//! The budget of a search: counted, not timed, so that the same input and seed produce the same placement on every
//! machine.

/// Steps left. A step is a look at one neighbour of a service: 2–6 ns.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    left: u64,
}

impl Budget {
    pub(crate) fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Takes steps; false when there are none left.
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

    /// A part of what is left as a budget of its own; what of it is not used comes back by
    /// [`Budget::release`].
    pub(crate) fn take(&mut self, steps: u64) -> Self {
        let steps = steps.min(self.left);
        self.left -= steps;
        Self { left: steps }
    }

    pub(crate) fn release(&mut self, part: &Self) {
        self.left += part.left;
    }
}
