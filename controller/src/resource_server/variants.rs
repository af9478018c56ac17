//! Per-client variants of resources, which have the same name but separate entries in the cache.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::index::facts::Key;
use crate::index::{Consumer, Place};

/// Returns the name in the cache of the variant for a set of clients. It contains `#`, which is not allowed in DNS
/// names.
pub(super) fn variant(name: &str, consumer: &Consumer) -> String {
    match consumer {
        Consumer::Namespace(namespace) => format!("{name}#{namespace}"),
        Consumer::Node(node) => format!("{name}#node/{node}"),
        Consumer::Zone(zone) => format!("{name}#zone/{zone}"),
    }
}

/// The existing variants, and the locations of pods.
#[derive(Debug, Default)]
pub(super) struct Variants {
    /// Names of the variants in the cache.
    names: BTreeSet<String>,
    /// Number of variants for nodes and zones.
    by_place: usize,
    places: BTreeMap<Key, Place>,
}

impl Variants {
    /// Records that a variant exists or was removed; returns whether this is a change.
    pub(super) fn note(&mut self, name: &str, consumer: &Consumer, there: bool) -> bool {
        let differs = match there {
            true => self.names.insert(name.to_owned()),
            false => self.names.remove(name),
        };
        if differs && !matches!(consumer, Consumer::Namespace(_)) {
            self.by_place = match there {
                true => self.by_place + 1,
                false => self.by_place.saturating_sub(1),
            };
        }
        differs
    }

    /// Records the node on which a pod runs; `None` if the pod was removed.
    pub(super) fn place(&mut self, pod: Key, place: Option<Place>) {
        match place {
            Some(place) => drop(self.places.insert(pod, place)),
            None => drop(self.places.remove(&pod)),
        }
    }

    /// Returns whether any variant depends on the node of the client's pod.
    pub(super) fn has_places(&self) -> bool {
        self.by_place > 0
    }

    /// Returns the name in the cache of the variant for a namespace.
    pub(super) fn of_namespace<'a>(&self, name: &'a str, namespace: &str) -> Cow<'a, str> {
        self.first(name, [Consumer::Namespace(namespace.to_owned())])
    }

    /// Returns the name in the cache of the variant for a pod. The node takes precedence over the zone.
    pub(super) fn of_pod<'a>(&self, name: &'a str, namespace: &str, pod: &str) -> Cow<'a, str> {
        if !self.has_places() {
            return name.into();
        }
        let place = self.places.get(&Key::new(namespace, pod)).cloned();
        let place = place.unwrap_or_default();
        let near = [
            place.node.map(Consumer::Node),
            place.zone.map(Consumer::Zone),
        ];
        self.first(name, near.into_iter().flatten())
    }

    fn first<'a>(
        &self,
        name: &'a str,
        consumers: impl IntoIterator<Item = Consumer>,
    ) -> Cow<'a, str> {
        let mut variants = consumers.into_iter().map(|one| variant(name, &one));
        let own = variants.find(|variant| self.names.contains(variant));
        own.map_or(Cow::Borrowed(name), Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_variant_that_there_is_is_given() {
        let mut variants = Variants::default();
        let place = Place {
            node: Some("n1".to_owned()),
            zone: Some("z".to_owned()),
        };
        variants.place(Key::new("shop", "a"), Some(place));
        assert_eq!(variants.of_pod("web", "shop", "a"), "web");
        let zone = Consumer::Zone("z".to_owned());
        assert!(variants.note(&variant("web", &zone), &zone, true));
        assert!(!variants.note(&variant("web", &zone), &zone, true));
        assert_eq!(variants.of_pod("web", "shop", "a"), "web#zone/z");
        assert_eq!(variants.of_pod("web", "shop", "b"), "web", "unknown name");
        let node = Consumer::Node("n1".to_owned());
        variants.note(&variant("web", &node), &node, true);
        assert_eq!(variants.of_pod("web", "shop", "a"), "web#node/n1");
        assert_eq!(variants.of_pod("cart", "shop", "a"), "cart");
        variants.place(Key::new("shop", "a"), None);
        assert_eq!(variants.of_pod("web", "shop", "a"), "web");
        let namespace = Consumer::Namespace("shop".to_owned());
        variants.note(&variant("web", &namespace), &namespace, true);
        assert_eq!(variants.of_namespace("web", "shop"), "web#shop");
        assert_eq!(variants.of_namespace("web", "other"), "web");
    }
}
