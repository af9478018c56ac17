//! Which servers form a group, and which of them hosts the group's ledger or board.
//!
//! Every process computes it from the same membership and needs to agree with nobody: the servers
//! of a priority level are ordered by the hash of their names and cut into runs of nearly equal
//! length. The host is the member with the highest hash of name and purpose (rendezvous, Thaler and
//! Ravishankar, 1998), so that a host which leaves moves its own ledger only. Health does not enter:
//! processes see it at different times.
//!
//! Invariant: each endpoint is in exactly one group, and its group's host is a member.

use std::collections::BTreeMap;

use super::message::Name;
use crate::hash::mix;
use crate::policy::Index;
use crate::{Locality, View};

/// Mixed into a name when hosts are compared, so that the order of names does not decide.
const HOSTING: u64 = 0x6c65_6467_6572_2121;

/// A partition of a view's endpoints.
#[derive(Clone, Debug)]
pub struct Groups {
    groups: Box<[Group]>,
    /// The group of each endpoint.
    of: Box<[u32]>,
    /// Endpoints by name, for what messages say.
    names: Box<[(Name, Index)]>,
}

/// Members, ordered by name, and the host among them.
#[derive(Clone, Debug)]
struct Group {
    members: Box<[Index]>,
    host: Index,
}

impl Groups {
    /// Groups of about `size` servers each.
    #[must_use]
    pub fn of_size(view: &View, size: u32) -> Self {
        let count = |members: usize| {
            let size = size.max(1) as usize;
            // Rounded: 50 servers in groups of 40 are one group rather than two halves.
            (members + size / 2) / size
        };
        Self::build(view, count)
    }

    /// So many groups of each priority level and locality.
    #[must_use]
    pub fn of_count(view: &View, groups: u32) -> Self {
        Self::build(view, |_| groups as usize)
    }

    fn build(view: &View, count: impl Fn(usize) -> usize) -> Self {
        let name = |index: Index| Name::of(&view.endpoints()[index.get()].key);
        let mut names: Vec<_> = (0..view.len())
            .map(Index::new)
            .map(|i| (name(i), i))
            .collect();
        names.sort_unstable();
        let mut groups = Vec::new();
        let mut of = vec![0; view.len()];
        for (_, mut members) in communities(view) {
            members.sort_unstable_by_key(|index| (name(*index), *index));
            let parts = count(members.len()).clamp(1, members.len());
            for part in 0..parts {
                let bound = |part: usize| part * members.len() / parts;
                let members = &members[bound(part)..bound(part + 1)];
                for index in members {
                    of[index.get()] = groups.len() as u32;
                }
                let weight = |index: &&Index| (mix(name(**index).to_bits() ^ HOSTING), **index);
                if let Some(host) = members.iter().max_by_key(weight) {
                    groups.push(Group {
                        members: members.into(),
                        host: *host,
                    });
                }
            }
        }
        Self {
            groups: groups.into(),
            of: of.into(),
            names: names.into(),
        }
    }

    /// How many groups there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there are no endpoints.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The group of an endpoint; `None` for an index of another view.
    #[must_use]
    pub fn of(&self, index: Index) -> Option<u32> {
        self.of.get(index.get()).copied()
    }

    /// The members of a group, ordered by name; empty for a number that is none.
    #[must_use]
    pub fn members(&self, group: u32) -> &[Index] {
        self.groups
            .get(group as usize)
            .map_or(&[], |group| &group.members)
    }

    /// Whose inbound proxy hosts the group's ledger or board.
    #[must_use]
    pub fn host(&self, group: u32) -> Option<Index> {
        self.groups.get(group as usize).map(|group| group.host)
    }

    /// The endpoint that a message means; `None` for a stranger.
    #[must_use]
    pub fn named(&self, name: Name) -> Option<Index> {
        let at = self.names.binary_search_by_key(&name, |(name, _)| *name);
        at.ok().map(|at| self.names[at].1)
    }
}

/// Who may be grouped together: members of one priority level, and of one locality where the
/// traffic is divided by localities.
fn communities(view: &View) -> BTreeMap<(u8, Option<&Locality>), Vec<Index>> {
    let mut communities: BTreeMap<_, Vec<Index>> = BTreeMap::new();
    for (at, endpoint) in view.endpoints().iter().enumerate() {
        let locality = endpoint
            .locality
            .as_ref()
            .filter(|_| view.divides_by_locality());
        communities
            .entry((endpoint.priority, locality))
            .or_default()
            .push(Index::new(at));
    }
    communities
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
    fn groups_are_a_partition_of_nearly_equal_parts() {
        for (n, size, expected) in [
            (40, 40, 1),
            (200, 40, 5),
            (50, 40, 1),
            (60, 40, 2),
            (3, 40, 1),
        ] {
            let view = view(n);
            let groups = Groups::of_size(&view, size);
            assert_eq!(groups.len(), expected, "{n} by {size}");
            let mut seen = vec![0; n];
            for group in 0..groups.len() as u32 {
                let members = groups.members(group);
                assert!(members.len().abs_diff(n / expected) <= 1);
                assert!(members.contains(&groups.host(group).unwrap()));
                for index in members {
                    seen[index.get()] += 1;
                    assert_eq!(groups.of(*index), Some(group));
                }
            }
            assert!(seen.iter().all(|&times| times == 1));
        }
        assert!(Groups::of_size(&view(0), 40).is_empty());
    }

    #[test]
    fn another_order_of_the_endpoints_gives_the_same_groups() {
        let endpoints: Vec<_> = (0..30).map(|i| Endpoint::new(format!("s{i}"))).collect();
        let reversed: Vec<_> = endpoints.iter().rev().cloned().collect();
        let [a, b] =
            [endpoints, reversed].map(|e| View::build(e, &ViewParams::default(), Time::ZERO));
        let keys = |view: &View| -> Vec<(String, Vec<String>)> {
            let groups = Groups::of_count(view, 4);
            let key = |i: Index| view.endpoint(i).unwrap().key.to_string();
            (0..4)
                .map(|g| {
                    let members = groups.members(g).iter().map(|i| key(*i)).collect();
                    (key(groups.host(g).unwrap()), members)
                })
                .collect()
        };
        assert_eq!(keys(&a), keys(&b));
    }

    #[test]
    fn names_lead_to_endpoints() {
        let view = view(5);
        let groups = Groups::of_count(&view, 2);
        assert_eq!(groups.named(Name::of("s3")), Some(Index::new(3)));
        assert_eq!(groups.named(Name::of("stranger")), None);
        assert_eq!(groups.of(Index::new(9)), None);
        assert!(groups.members(9).is_empty());
    }

    #[test]
    fn levels_are_not_mixed() {
        let mut endpoints: Vec<_> = (0..6).map(|i| Endpoint::new(format!("s{i}"))).collect();
        for endpoint in &mut endpoints[4..] {
            endpoint.priority = 1;
        }
        let view = View::build(endpoints, &ViewParams::default(), Time::ZERO);
        let groups = Groups::of_size(&view, 40);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups.members(1).len(), 2);
    }
}
