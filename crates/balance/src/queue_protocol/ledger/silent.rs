//! Excluded servers: selects the requests that are sent to them as their share.

use super::{Ledger, Scan, Scope};
use crate::Rng;
use crate::queue_protocol::message::Referral;

impl Ledger {
    /// Returns the excluded server whose turn it is; if most servers are excluded, also a second one. `None` if the
    /// turn is that of another server.
    pub(super) fn turn(&self, scope: Scope, scan: &Scan, rng: &mut Rng) -> Option<Referral> {
        let first = self.draw_lost(scope, None, scan.lost, rng)?;
        let left = scan.lost - scope.share(&self.entries[first]);
        let second = (2.0 * scan.lost > scan.weight)
            .then(|| self.draw_lost(scope, Some(first), left, rng))
            .flatten();
        Some(Referral {
            server: self.entries[first].name,
            ticket: None,
            second: second.map(|at| self.entries[at].name),
        })
    }

    /// Draws an excluded server, but not `except`, by weight; `sum` is the sum of the weights.
    fn draw_lost(
        &self,
        scope: Scope,
        except: Option<usize>,
        sum: f64,
        rng: &mut Rng,
    ) -> Option<usize> {
        let mut left = rng.unit() * sum;
        let mut last = None;
        for (at, entry) in self.entries.iter().enumerate() {
            if !entry.lost || !scope.has(at, entry) || except == Some(at) {
                continue;
            }
            last = Some(at);
            left -= scope.share(entry);
            if left < 0.0 {
                break;
            }
        }
        last
    }
}
