//! Divides servers into groups, and selects the member of each group that hosts its ledger.
//!
//! Every process computes the groups from the membership, without coordination. Only names are used: priorities,
//! localities, weights and health differ from process to process. So a group may contain servers that a balancer must
//! not compare; the balancer itself restricts the choice ([`Among`](super::Among)).
//!
//! Groups of about a given size are the leaves of a binary tree over the hashes of names: a node is split by the next
//! bit while it contains at least 1.5 times that number of servers, unless a tiny part would be split off (see
//! [`is_leaf`]). So a server that joins or leaves changes the groups of at most one group's servers, whereas positions
//! in a sorted list would move a part of every group. The host is the member with the highest hash of name and purpose
//! (rendezvous, Thaler and Ravishankar, 1998), so that a host which leaves moves only its own ledger.
//!
//! Invariant: each endpoint is in exactly one group, and its group's host is a member.

use super::message::{Among, Name};
use crate::View;
use crate::hash::mix;
use crate::policy::Index;

/// A constant that is mixed into names when hosts are compared, so that hosts do not depend on the order of names.
const HOSTING: u64 = 0x6c65_6467_6572_2121;

/// A constant that is mixed into a name for its position in the tree.
const GROUPING: u64 = 0x6772_6f75_7069_6e67;

/// A partition of a view's endpoints.
#[derive(Clone, Debug)]
pub struct Groups {
    groups: Box<[Group]>,
    /// The number of the group of each endpoint.
    of: Box<[u32]>,
    /// Endpoints by name, as messages refer to them.
    names: Box<[(Name, Index)]>,
}

/// The members, ordered by name, and the host among them.
#[derive(Clone, Debug)]
struct Group {
    members: Box<[Index]>,
    host: Index,
    membership: u64,
}

/// An endpoint with its position in the tree.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Leaf {
    hash: u64,
    name: Name,
    index: Index,
}

impl Groups {
    /// Creates groups of about `size` servers each.
    #[must_use]
    pub fn of_size(view: &View, size: u32) -> Self {
        let size = size.max(1) as usize;
        let mut leaves = leaves(view);
        leaves.sort_unstable();
        let mut parts = Vec::new();
        split(&leaves, 0, size, &mut parts);
        Self::new(view, parts)
    }

    /// Creates this number of groups, without those that would have no servers.
    #[must_use]
    pub fn of_count(view: &View, groups: u32) -> Self {
        let mut parts = vec![Vec::new(); groups.max(1) as usize];
        for leaf in leaves(view) {
            let weight = |group: &usize| mix(leaf.hash ^ mix(*group as u64));
            if let Some(group) = (0..parts.len()).max_by_key(weight) {
                parts[group].push(leaf);
            }
        }
        parts.retain(|part| !part.is_empty());
        Self::new(view, parts)
    }

    fn new(view: &View, parts: Vec<Vec<Leaf>>) -> Self {
        let mut names: Vec<_> = parts.iter().flatten().map(|l| (l.name, l.index)).collect();
        names.sort_unstable();
        let mut of = vec![0; view.len()];
        let mut groups = Vec::with_capacity(parts.len());
        for mut part in parts {
            part.sort_unstable_by_key(|leaf| (leaf.name, leaf.index));
            let members: Box<[Index]> = part.iter().map(|leaf| leaf.index).collect();
            for index in &members {
                of[index.get()] = groups.len() as u32;
            }
            let weight = |leaf: &&Leaf| (mix(leaf.name.to_bits() ^ HOSTING), leaf.index);
            if let Some(host) = part.iter().max_by_key(weight) {
                let host = host.index;
                groups.push(Group {
                    members,
                    host,
                    membership: Among::membership(part.iter().map(|leaf| leaf.name)),
                });
            }
        }
        Self {
            groups: groups.into(),
            of: of.into(),
            names: names.into(),
        }
    }

    /// Returns the number of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns whether there are no endpoints.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the group of an endpoint; `None` for an index of another view.
    #[must_use]
    pub fn of(&self, index: Index) -> Option<u32> {
        self.of.get(index.get()).copied()
    }

    /// Returns the members of a group, ordered by name; empty for an unknown group.
    #[must_use]
    pub fn members(&self, group: u32) -> &[Index] {
        self.groups
            .get(group as usize)
            .map_or(&[], |group| &group.members)
    }

    /// Returns the restriction of a ledger query to the members `some`; `None` if the group is too large for a
    /// restriction.
    pub(crate) fn among(&self, group: u32, some: &[Index], equal: bool) -> Option<Among> {
        let group = self.groups.get(group as usize)?;
        if group.members.len() > Among::MOST {
            return None;
        }
        let members = group.members.iter().enumerate();
        let servers = members
            .filter(|(_, member)| some.contains(member))
            .fold(0, |servers, (at, _)| servers | 1 << at);
        Some(Among {
            membership: group.membership,
            equal,
            servers,
        })
    }

    /// Returns the server whose inbound proxy hosts the group's ledger.
    #[must_use]
    pub fn host(&self, group: u32) -> Option<Index> {
        self.groups.get(group as usize).map(|group| group.host)
    }

    /// Returns the endpoint that a message names; `None` if the name is unknown.
    #[must_use]
    pub fn named(&self, name: Name) -> Option<Index> {
        let at = self.names.binary_search_by_key(&name, |(name, _)| *name);
        at.ok().map(|at| self.names[at].1)
    }
}

fn leaves(view: &View) -> Vec<Leaf> {
    let endpoints = view.endpoints().iter().enumerate();
    let leaf = |(at, endpoint): (usize, &crate::Endpoint)| {
        let name = Name::of(&endpoint.key);
        Leaf {
            hash: mix(name.to_bits() ^ GROUPING),
            name,
            index: Index::new(at),
        }
    };
    endpoints.map(leaf).collect()
}

/// Adds the groups of a node of the tree to `groups`. The `leaves` are ordered and have their first `depth` bits in
/// common.
fn split(leaves: &[Leaf], depth: u32, size: usize, groups: &mut Vec<Vec<Leaf>>) {
    if leaves.is_empty() {
        return;
    }
    if is_leaf(leaves, depth, size) {
        groups.push(leaves.to_vec());
        return;
    }
    let (zeros, ones) = halves(leaves, depth);
    split(zeros, depth + 1, size, groups);
    split(ones, depth + 1, size, groups);
}

/// Returns whether a node of the tree is a group. This depends only on the node's members, so that a join or a leave
/// affects one path from the root: the highest node on it that becomes a group, or ceases to be one, contains all
/// servers whose group changes.
fn is_leaf(leaves: &[Leaf], depth: u32, size: usize) -> bool {
    // 50 servers in groups of 40 are one group, 60 are two.
    if 2 * leaves.len() < 3 * size || depth == u64::BITS {
        return true;
    }
    let (zeros, ones) = halves(leaves, depth);
    let (less, more) = if zeros.len() < ones.len() {
        (zeros, ones)
    } else {
        (ones, zeros)
    };
    // With few servers a ledger has little information, with a single one none.
    let least = size.div_ceil(2).max(2.min(size));
    less.len() < least && is_leaf(more, depth + 1, size)
}

/// Returns the members of a node whose bit at `depth` is not set, and those whose bit is set.
fn halves(leaves: &[Leaf], depth: u32) -> (&[Leaf], &[Leaf]) {
    let bit = 1_u64 << (u64::BITS - 1 - depth);
    leaves.split_at(leaves.partition_point(|leaf| leaf.hash & bit == 0))
}

#[cfg(test)]
mod tests;
