//! `random`: each request goes to a random endpoint, in proportion to the weights. `lor` converges to this baseline as
//! the number of balancers grows (LOR paper, Theorem 1).

use super::{Index, PickCtx, Policy};
use crate::{Rng, View};

#[derive(Debug)]
pub(crate) struct Random;

impl Policy for Random {
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        Some(view.field(ctx, rng)?.draw(rng).index)
    }
}
