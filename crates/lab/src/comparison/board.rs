//! The board of join-idle-queue: names of servers that have become idle, each handed out once.
//!
//! Lu, Xie, Kliot, Geller, Larus, Greenberg, "Join-Idle-Queue" (2011): the server announces itself
//! when its last request ends, so that no loads have to be queried for an arriving request. A name
//! may be stale, because other traffic reaches the server without the board.

use maglor_balance::Rng;
use maglor_balance::queue_protocol::Name;

/// The idle servers of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    idle: Vec<Name>,
}

impl Board {
    /// Adds an idle server; adding it twice changes nothing.
    pub(crate) fn post(&mut self, name: Name) {
        if !self.idle.contains(&name) {
            self.idle.push(name);
        }
    }

    /// Answers a query: removes and returns a random idle server.
    pub(crate) fn take(&mut self, rng: &mut Rng) -> Option<Name> {
        if self.idle.is_empty() {
            return None;
        }
        let at = rng.below(self.idle.len() as u32) as usize;
        Some(self.idle.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_handed_out_once() {
        let mut rng = Rng::seed(1);
        let mut board = Board::default();
        for bits in [1, 2, 1, 3] {
            board.post(Name::from_bits(bits));
        }
        let mut taken: Vec<u64> = std::iter::from_fn(|| board.take(&mut rng))
            .map(Name::to_bits)
            .collect();
        taken.sort_unstable();
        assert_eq!(taken, [1, 2, 3]);
        assert_eq!(board.take(&mut rng), None);
    }
}
