//! The classes of endpoints whose true loads may be compared.
//!
//! A class is one priority level, and one locality if traffic is divided by localities: a comparison across these
//! bounds would violate shares and priorities. If weights are those of localities, a class is also one locality.
//! `localFirst` assigns weights to each node that determine how much of the node's calls goes to each locality. In a
//! comparison with counts of requests from all nodes, they would be interpreted as how many requests each server should
//! have, which is the same for all nodes. So a request is assigned to a locality by the weights, and to a server in
//! that locality by the loads.
//!
//! Weights are treated as those of localities if endpoints of the same locality have the same weight, and those of two
//! localities differ; endpoints without a locality count as one locality. Other weights belong to single servers.
//!
//! Invariant: each usable endpoint is in exactly one class.

use std::collections::BTreeMap;

use crate::policy::Index;
use crate::view::Group;
use crate::{Locality, View};

/// The value for an endpoint that is not usable and belongs to no class.
const NONE: u32 = u32::MAX;

/// The classes of a view's endpoints; see the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    classes: Vec<Class>,
    of: Box<[u32]>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Class {
    pub(crate) members: Vec<Index>,
    /// Whether all endpoints of the class have the same weight.
    pub(crate) equal: bool,
}

impl Classes {
    pub(crate) fn new(view: &View) -> Self {
        let mut all = Self {
            classes: Vec::new(),
            of: vec![NONE; view.len()].into(),
        };
        for group in view.groups() {
            if !depends_on_locality(view, group) {
                let members = group.slots().iter().map(|slot| slot.index).collect();
                all.add(members, group.equal_weights());
                continue;
            }
            let mut by_locality: BTreeMap<_, Vec<Index>> = BTreeMap::new();
            for slot in group.slots() {
                let endpoint = view.endpoint(slot.index);
                let locality = endpoint.and_then(|one| one.locality.as_ref());
                by_locality.entry(locality).or_default().push(slot.index);
            }
            for members in by_locality.into_values() {
                all.add(members, true);
            }
        }
        all
    }

    /// Returns the classes if weights are those of localities; `None` = the parts of the view are the classes.
    pub(crate) fn by_locality(view: &View) -> Option<Self> {
        let mut groups = view.groups().iter();
        groups
            .any(|group| depends_on_locality(view, group))
            .then(|| Self::new(view))
    }

    fn add(&mut self, members: Vec<Index>, equal: bool) {
        for member in &members {
            self.of[member.get()] = self.classes.len() as u32;
        }
        self.classes.push(Class { members, equal });
    }

    /// Returns the class of an endpoint; `None` if it is not usable, or belongs to another view.
    pub(crate) fn of(&self, index: Index) -> Option<u32> {
        let class = self.of.get(index.get()).copied();
        class.filter(|class| *class != NONE)
    }

    pub(crate) fn get(&self, class: u32) -> Option<&Class> {
        self.classes.get(class as usize)
    }
}

fn depends_on_locality(view: &View, group: &Group) -> bool {
    if group.equal_weights() {
        return false;
    }
    let mut weights: BTreeMap<Option<&Locality>, u32> = BTreeMap::new();
    group.slots().iter().all(|slot| {
        let endpoint = view.endpoint(slot.index);
        let locality = endpoint.and_then(|one| one.locality.as_ref());
        *weights.entry(locality).or_insert(slot.weight) == slot.weight
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, Time, ViewParams};

    fn classes(endpoints: &[(&str, u32, u8)]) -> Vec<(Vec<usize>, bool)> {
        let endpoint = |(at, &(node, weight, priority)): (usize, &(&str, u32, u8))| {
            let mut endpoint = Endpoint::new(format!("s{at}")).priority(priority);
            endpoint.weight = weight.try_into().unwrap();
            endpoint.locality = (!node.is_empty()).then(|| Locality::new("", "", node));
            endpoint
        };
        let endpoints: Vec<_> = endpoints.iter().enumerate().map(endpoint).collect();
        let view = View::build(endpoints, &ViewParams::default(), Time::ZERO);
        let classes = Classes::new(&view);
        assert_eq!(
            Classes::by_locality(&view).is_some(),
            classes.classes.len() > view.groups().len()
        );
        let at = |members: &[Index]| members.iter().map(|at| at.get()).collect();
        let all = classes.classes.iter();
        all.map(|class| (at(&class.members), class.equal)).collect()
    }

    #[test]
    fn localities_with_weights_of_their_own_are_classes() {
        let seen = classes(&[("a", 1500, 0), ("b", 750, 0), ("c", 750, 0), ("d", 1, 1)]);
        let alone = |at| (vec![at], true);
        assert_eq!(seen, [alone(0), alone(1), alone(2), alone(3)]);
        let seen = classes(&[("", 1500, 0), ("b", 750, 0), ("", 1500, 0)]);
        assert_eq!(seen, [(vec![0, 2], true), (vec![1], true)]);
    }

    #[test]
    fn other_weights_are_the_servers_own() {
        let own = |endpoints: &[_]| assert_eq!(classes(endpoints), [(vec![0, 1, 2], false)]);
        own(&[("a", 3, 0), ("a", 2, 0), ("b", 1, 0)]);
        own(&[("", 3, 0), ("", 2, 0), ("", 1, 0)]);
        let equal = classes(&[("a", 1, 0), ("b", 1, 0)]);
        assert_eq!(equal, [(vec![0, 1], true)]);
    }
}
