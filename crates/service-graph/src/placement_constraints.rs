//! Placement constraints: nodes on which a replica of a service may not be started.

/// Pairs of services and nodes, by index, where no replica may be started. Replicas that are already running are not
/// affected.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Bars {
    nodes: usize,
    /// Whether each pair is forbidden, row by row; empty if no pair is.
    cells: Vec<bool>,
}

impl Bars {
    /// Creates a set in which nothing is forbidden.
    #[must_use]
    pub fn new(services: usize, nodes: usize) -> Self {
        Self {
            nodes,
            cells: vec![false; services * nodes],
        }
    }

    /// Forbids starting replicas of a service on a node; indices out of range are ignored.
    pub fn bar(&mut self, service: usize, node: usize) {
        if node < self.nodes
            && let Some(cell) = self.cells.get_mut(service * self.nodes + node)
        {
            *cell = true;
        }
    }

    /// Forbids starting replicas of a service on any node, so that they stay where they are.
    pub fn hold(&mut self, service: usize) {
        for node in 0..self.nodes {
            self.bar(service, node);
        }
    }

    /// Returns whether no replica of a service may be started on a node.
    #[must_use]
    pub fn is_barred(&self, service: usize, node: usize) -> bool {
        let cell = service * self.nodes + node;
        node < self.nodes && self.cells.get(cell).is_some_and(|barred| *barred)
    }

    /// Returns whether the replicas of a service stay where they are.
    #[must_use]
    pub fn is_held(&self, service: usize) -> bool {
        self.nodes > 0 && (0..self.nodes).all(|node| self.is_barred(service, node))
    }

    pub(crate) fn cells(&self) -> &[bool] {
        &self.cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_barred_everywhere_is_held() {
        let mut bars = Bars::new(2, 2);
        bars.bar(0, 1);
        bars.hold(1);
        bars.bar(1, 7);
        bars.bar(9, 0);
        let barred = |service| [0, 1].map(|node| bars.is_barred(service, node));
        assert_eq!(
            (barred(0), barred(1), barred(2)),
            ([false, true], [true; 2], [false; 2])
        );
        assert!(bars.is_held(1) && !bars.is_held(0) && !bars.is_held(2));
        assert!(!Bars::default().is_held(0));
    }
}
