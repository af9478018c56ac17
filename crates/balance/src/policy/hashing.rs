//! The common part of the hash policies: a table per priority level, the search for an endpoint that can take the
//! request, and bounded load.
//!
//! A table contains every member of its level, regardless of health. If an endpoint fails, only its own keys move, each
//! to the owner of the next slot, and return when it recovers. A view whose members, weights and priorities are
//! unchanged shares the tables of the previous view.
//!
//! Bounded load (Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016): an endpoint accepts
//! no request beyond `⌈c · (total + 1) · share⌉`; further requests go to the next endpoint. `c` is
//! `hash_balance_factor / 100`; the total is counted at the pick, O(n), and only when the key's own endpoint has
//! outstanding requests.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::{Index, PickCtx, Policy};
use crate::hash::{combine, hash_bytes, mix};
use crate::{Rng, View};

/// Data that the next view's policy may reuse: the tables of a hash policy, if they still fit, or what a querying
/// policy knows of servers.
pub type SharedTables = Arc<dyn Any + Send + Sync>;

/// A consistent-hash table over the members of one priority level.
pub(crate) trait Table: Debug + Send + Sync + Sized + 'static {
    /// The inputs of a table besides its members.
    type Params: Clone + Debug + PartialEq + Send + Sync;

    /// Builds a table from the members, which have positive weights and are ordered by key.
    fn build(members: &[Member], params: &Self::Params) -> Self;

    /// Returns the number of slots; 0 if there are no members.
    fn len(&self) -> usize;

    /// Returns the slot of a hash, below `len`. Must not be called on an empty table.
    fn slot(&self, hash: u64) -> usize;

    /// Returns the endpoint that owns a slot.
    fn owner(&self, slot: usize) -> Index;
}

/// A member of a hash table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) key: Arc<str>,
    pub(crate) index: Index,
    pub(crate) weight: f64,
}

/// The tables of all levels, with the inputs that they were built from.
#[derive(Debug)]
struct Tables<T: Table> {
    params: T::Params,
    members: Vec<Vec<Member>>,
    levels: Vec<T>,
}

/// A policy that looks up the hash of a request's key in a table.
#[derive(Debug)]
pub(crate) struct Hashed<T: Table> {
    tables: Arc<Tables<T>>,
    bound: Option<Bound>,
}

#[derive(Debug)]
struct Bound {
    /// `hash_balance_factor / 100`, at least 1.
    factor: f64,
    /// The fair share of each endpoint in its level; 0 for endpoints that are not usable.
    shares: Box<[f64]>,
}

impl<T: Table> Hashed<T> {
    /// Builds the tables, or shares `previous` if it was built from the same members.
    pub(crate) fn new(
        view: &View,
        params: T::Params,
        balance_percent: Option<u32>,
        previous: Option<SharedTables>,
    ) -> Self {
        let members: Vec<_> = (0..view.levels().len())
            .map(|level| members(view, level))
            .collect();
        let fits = |tables: &Arc<Tables<T>>| tables.params == params && tables.members == members;
        let shared = previous
            .and_then(|p| p.downcast::<Tables<T>>().ok())
            .filter(fits);
        let tables = shared.unwrap_or_else(|| {
            let levels = members
                .iter()
                .map(|level| T::build(level, &params))
                .collect();
            Arc::new(Tables {
                params,
                members,
                levels,
            })
        });
        let bound = balance_percent.map(|percent| Bound::new(percent, view));
        Self { tables, bound }
    }

    /// Searches from the key's slot for the first endpoint that can take the request.
    #[cold]
    fn search(&self, view: &View, ctx: &PickCtx<'_>, hash: u64) -> Option<Index> {
        let bits = mix(hash);
        let home = view.level_at((bits >> 32) as u32)?;
        let untried = |level: usize| has_untried(view, level, ctx.excluded);
        // The key's level; if all of it has been attempted, the highest with unattempted endpoints;
        // if there is none, the exclusions are ignored.
        let levels = 0..view.levels().len();
        let (level, excluded) = match std::iter::once(home).chain(levels).find(|&l| untried(l)) {
            Some(level) => (level, ctx.excluded),
            None => (home, &[][..]),
        };
        let walk = Walk {
            view,
            level,
            excluded,
            ctx,
            bits,
        };
        self.tables
            .levels
            .get(level)
            .and_then(|table| walk.along(table, hash, self.bound.as_ref()))
            .or_else(|| walk.rendezvous())
    }
}

impl<T: Table> Policy for Hashed<T> {
    #[inline]
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        let hash = match ctx.hash {
            Some(hash) => hash,
            None => rng.next_u64(),
        };
        if self.bound.is_none()
            && view.is_undisturbed(ctx)
            && let Some(level) = view.sole_level()
            && let Some(table) = self.tables.levels.get(level)
            && table.len() > 0
        {
            let owner = table.owner(table.slot(hash));
            if owner.get() < view.len() {
                return Some(owner);
            }
        }
        self.search(view, ctx, hash)
    }

    fn tables(&self) -> Option<SharedTables> {
        Some(Arc::clone(&self.tables) as SharedTables)
    }
}

fn members(view: &View, level: usize) -> Vec<Member> {
    let weights = view.table_weights(level);
    let indices = view.levels()[level].members.iter();
    let mut members: Vec<Member> = indices
        .zip(weights)
        .filter(|&(_, weight)| weight > 0.0)
        .map(|(&index, weight)| {
            let key = Arc::clone(&view.endpoints()[index.get()].key);
            Member { key, index, weight }
        })
        .collect();
    // All proxies must build the same table, whatever the order in which they received the
    // endpoints.
    members.sort_by(|a, b| a.key.cmp(&b.key));
    members
}

fn has_untried(view: &View, level: usize, excluded: &[Index]) -> bool {
    let mut usable = view.slots_of(level);
    usable.any(|slot| !excluded.contains(&slot.index))
}

/// The state of one search for an endpoint.
struct Walk<'a> {
    view: &'a View,
    level: usize,
    excluded: &'a [Index],
    ctx: &'a PickCtx<'a>,
    /// The bits of the hash that the table did not use, for the random decision of slow start.
    bits: u64,
}

impl Walk<'_> {
    /// Returns the first acceptable owner from the hash's slot on; if there is none, the first that is only overloaded.
    /// `None` if the search finds neither, which is rare because of its length.
    fn along<T: Table>(&self, table: &T, hash: u64, bound: Option<&Bound>) -> Option<Index> {
        if table.len() == 0 {
            return None;
        }
        let members = self.view.levels()[self.level].members.len();
        let mut slot = table.slot(hash);
        let mut total = None;
        let mut overloaded = None;
        for _ in 0..table.len().min(16 * members + 64) {
            let owner = table.owner(slot);
            if self.accepts(owner) {
                if bound.is_none_or(|bound| bound.admits(owner, self, &mut total)) {
                    return Some(owner);
                }
                overloaded = overloaded.or(Some(owner));
            }
            slot = if slot + 1 == table.len() { 0 } else { slot + 1 };
        }
        overloaded
    }

    fn accepts(&self, owner: Index) -> bool {
        self.view.is_usable(owner)
            && !self.excluded.contains(&owner)
            && self.view.admits(owner, self.level, self.ctx.now, self.bits)
    }

    /// Returns the usable endpoint with the highest random weight, first in the key's level; consistent, O(n).
    fn rendezvous(&self) -> Option<Index> {
        let best_of = |level: usize| {
            let slots = self.view.slots_of(level);
            let untried = slots.filter(|slot| !self.excluded.contains(&slot.index));
            untried.map(|slot| slot.index).max_by_key(|index| {
                let key = &self.view.endpoints()[index.get()].key;
                mix(combine(self.bits, hash_bytes(key.as_bytes())))
            })
        };
        std::iter::once(self.level)
            .chain(0..self.view.levels().len())
            .find_map(best_of)
    }

    /// Returns the requests outstanding at the usable endpoints of the level.
    fn total(&self) -> u64 {
        let slots = self.view.slots_of(self.level);
        slots.map(|slot| u64::from(slot.stats.outstanding())).sum()
    }
}

impl Bound {
    fn new(percent: u32, view: &View) -> Self {
        let mut shares = vec![0.0; view.len()].into_boxed_slice();
        for level in 0..view.levels().len() {
            for (group, part) in view.parts_of(level) {
                let sum: f64 = group
                    .slots()
                    .iter()
                    .map(|slot| f64::from(slot.weight))
                    .sum();
                for slot in group.slots() {
                    shares[slot.index.get()] = part * f64::from(slot.weight) / sum;
                }
            }
        }
        Self {
            factor: f64::from(percent.max(100)) / 100.0,
            shares,
        }
    }

    /// Returns whether one more request keeps the endpoint within its bound.
    fn admits(&self, owner: Index, walk: &Walk<'_>, total: &mut Option<u64>) -> bool {
        let stats = &walk.view.endpoints()[owner.get()].stats;
        let outstanding = stats.outstanding();
        if outstanding == 0 {
            // Any bound is at least one.
            return true;
        }
        let total = *total.get_or_insert_with(|| walk.total());
        let share = self.shares.get(owner.get()).copied().unwrap_or(0.0);
        f64::from(outstanding) < (self.factor * (total + 1) as f64 * share).ceil()
    }
}
