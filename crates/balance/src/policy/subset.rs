//! `subset`: least outstanding requests within a fixed subset of the endpoints, one subset per client.
//!
//! Deterministic subsetting (Beyer et al., "Site Reliability Engineering", 2016, chapter 20): clients are numbered, and
//! each run of `n / size` clients divides one random order of the endpoints among its members, so that every endpoint
//! serves nearly the same number of clients. There are fewer connections, and a client's own counts contain more
//! information about a server's queue; but a client cannot leave its subset when other clients keep the endpoints of
//! that subset busy.

use smallvec::SmallVec;

use super::{Choices, Index, PickCtx, Policy};
use crate::queue_protocol::Name;
use crate::view::{Field, Slot};
use crate::weighted_load::{Candidate, least, unit_of};
use crate::{Rng, View};

/// The number of draws for each one that is expected to be needed to hit the subset. After that, any endpoint is taken,
/// because those of the subset are down or have been attempted.
const PERSEVERANCE: usize = 16;

/// Parameters of `subset`.
///
/// # Defaults
///
/// * `size`: 20
/// * `client`: 0
/// * `choices`: 2
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SubsetParams {
    /// The number of endpoints in a subset, 1–65536.
    pub size: u32,
    /// The number of this client. Each client is configured with a different number.
    pub client: u32,
    /// The number of compared candidates, 1–1024.
    pub choices: u32,
}

impl Default for SubsetParams {
    fn default() -> Self {
        Self {
            size: 20,
            client: 0,
            choices: 2,
        }
    }
}

impl SubsetParams {
    pub(crate) const MAX_CHOICES: u32 = Choices::MAX;
    pub(crate) const MAX_CLIENT: u32 = 1_000_000;
    pub(crate) const MAX_SIZE: u32 = 65_536;
}

#[derive(Debug)]
pub(crate) struct Subset {
    choices: u32,
    /// Whether each endpoint is in this client's subset.
    chosen: Box<[bool]>,
    /// The number of draws after which any endpoint is taken.
    draws: usize,
}

impl Subset {
    pub(crate) fn new(params: &SubsetParams, view: &View) -> Self {
        let (n, size) = (view.len(), params.size as usize);
        let mut chosen = vec![n <= size; n];
        if n > size {
            for index in part(params, view) {
                chosen[index.get()] = true;
            }
        }
        Self {
            choices: params.choices,
            chosen: chosen.into(),
            draws: PERSEVERANCE * n.div_ceil(size).max(1),
        }
    }

    fn draw<'v>(&self, field: &Field<'v>, rng: &mut Rng) -> &'v Slot {
        let mut slot = field.draw(rng);
        for _ in 1..self.draws {
            if self.chosen.get(slot.index.get()).copied().unwrap_or(true) {
                break;
            }
            slot = field.draw(rng);
        }
        slot
    }
}

/// Returns the subset of a client, if there are more endpoints than `size`.
fn part(params: &SubsetParams, view: &View) -> Vec<Index> {
    let size = params.size as usize;
    let parts = view.len() / size;
    let mut order: Vec<(Name, Index)> = view
        .endpoints()
        .iter()
        .enumerate()
        .map(|(at, endpoint)| (Name::of(&endpoint.key), Index::new(at)))
        .collect();
    // By name first: clients may have the endpoints in different orders.
    order.sort_unstable();
    let round = params.client as usize / parts;
    let mut rng = Rng::seed(round as u64);
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u32 + 1) as usize);
    }
    let first = params.client as usize % parts * size;
    order[first..first + size]
        .iter()
        .map(|(_, index)| *index)
        .collect()
}

impl Policy for Subset {
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        let field = view.field(ctx, rng)?;
        let drawn: SmallVec<[_; 8]> = (0..self.choices)
            .map(|_| self.draw(&field, rng))
            .map(|slot| Candidate {
                of: slot.index,
                load: slot.stats.outstanding(),
                weight: field.weight(slot),
            })
            .collect();
        if field.is_even() {
            let least = drawn.iter().min_by_key(|candidate| candidate.load);
            return least.map(|least| least.of);
        }
        least(&drawn, unit_of(&drawn), rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, Time, ViewParams};

    fn view(n: usize) -> View {
        let endpoints: Vec<_> = (0..n).map(|i| Endpoint::new(format!("s{i}"))).collect();
        View::build(endpoints, &ViewParams::default(), Time::ZERO)
    }

    #[test]
    fn clients_of_a_round_share_the_endpoints_out() {
        let view = view(40);
        for first in [0, 4, 400] {
            let mut clients = [0; 40];
            for client in first..first + 4 {
                let params = SubsetParams {
                    size: 10,
                    client,
                    choices: 2,
                };
                let policy = Subset::new(&params, &view);
                let mine: Vec<_> = (0..40).filter(|i| policy.chosen[*i]).collect();
                assert_eq!(mine.len(), 10);
                mine.into_iter().for_each(|i| clients[i] += 1);
                let mut rng = Rng::seed(1);
                for _ in 0..200 {
                    let index = policy.pick(&view, &PickCtx::new(Time::ZERO), &mut rng);
                    assert!(policy.chosen[index.unwrap().get()]);
                }
            }
            assert_eq!(clients, [1; 40], "each endpoint has one client a round");
        }
    }

    #[test]
    fn a_part_that_is_down_is_left() {
        let endpoints: Vec<_> = (0..40).map(|i| Endpoint::new(format!("s{i}"))).collect();
        let whole = View::build(endpoints.clone(), &ViewParams::default(), Time::ZERO);
        let params = SubsetParams {
            size: 5,
            ..SubsetParams::default()
        };
        for (at, chosen) in Subset::new(&params, &whole).chosen.iter().enumerate() {
            endpoints[at].stats.set_healthy(!chosen);
        }
        let view = View::build(endpoints, &ViewParams::default(), Time::ZERO);
        let policy = Subset::new(&params, &view);
        let mut rng = Rng::seed(2);
        let index = policy.pick(&view, &PickCtx::new(Time::ZERO), &mut rng);
        assert!(view.is_usable(index.unwrap()));
    }
}
