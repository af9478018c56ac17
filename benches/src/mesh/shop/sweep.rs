//! Finds the highest sustained load in few runs: upwards in coarse steps until one is not
//! sustained, then by bisection.

/// A search in whole requests per second.
#[derive(Debug, Clone)]
pub(super) struct Sweep {
    coarse: u32,
    fine: u32,
    most: u32,
    sustained: u32,
    refused: Option<u32>,
}

impl Sweep {
    /// Creates a search from `coarse` up to `most`, to `fine`, of which both are multiples.
    pub(super) fn new(coarse: u32, fine: u32, most: u32) -> Self {
        Self {
            coarse,
            fine: fine.max(1),
            most,
            sustained: 0,
            refused: None,
        }
    }

    /// Returns the next load to test; `None` when the highest is known.
    pub(super) fn next(&self) -> Option<u32> {
        let Some(refused) = self.refused else {
            let next = (self.sustained + self.coarse).min(self.most);
            return (next > self.sustained).then_some(next);
        };
        let steps = (refused - self.sustained) / self.fine;
        (steps > 1).then_some(self.sustained + steps / 2 * self.fine)
    }

    /// Records the result of a tested load.
    pub(super) fn attempted(&mut self, load: u32, is_sustained: bool) {
        match is_sustained {
            true => self.sustained = load,
            false => self.refused = Some(load),
        }
    }

    /// Returns the highest load that is known to be sustained; 0: none is.
    pub(super) fn highest(&self) -> u32 {
        self.sustained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads that are tested if this is the highest, and the result.
    fn sweep(limit: u32) -> (Vec<u32>, u32) {
        let mut sweep = Sweep::new(200, 25, 625);
        let mut attempted = Vec::new();
        while let Some(load) = sweep.next() {
            attempted.push(load);
            sweep.attempted(load, load <= limit);
        }
        (attempted, sweep.highest())
    }

    #[test]
    fn the_highest_is_found_in_few_runs() {
        for limit in 0..=700 {
            let (attempted, found) = sweep(limit);
            assert_eq!(found, (limit / 25 * 25).min(625), "{limit}: {attempted:?}");
            assert!(attempted.len() <= 7, "{limit}: {attempted:?}");
        }
        assert_eq!(sweep(530).0, [200, 400, 600, 500, 550, 525]);
        assert_eq!(sweep(1000).0, [200, 400, 600, 625]);
    }
}
