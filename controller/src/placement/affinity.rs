//! Places new pods with a preferred node affinity, which the admission webhook adds.
//!
//! It is only a preference: a pod can always be scheduled, regardless of what happens to the node, this controller or
//! the policy. The pod's own settings are not changed, and if they may conflict, no preference is added.

use serde_json::{Value, json};

use super::PLACED;
use super::moving::Ticket;
use super::pod::Pod;
use maglor_service_graph::relocate::Spread;

/// The preferred node of a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// Name of the node.
    pub node: String,
    /// Why the node is preferred.
    pub why: String,
}

/// Returns the preferred node of a ReplicaSet's next pod: the target of a moving pod if there is one, otherwise the
/// node that is furthest below its wanted share.
///
/// `siblings` are the pods of the ReplicaSet; pods that are not scheduled yet count at their preferred node.
#[must_use]
pub fn choose(wanted: &Spread, siblings: &[Pod], ticket: Option<&Ticket>) -> Option<Place> {
    let live = || siblings.iter().filter(|pod| !pod.ends && !pod.is_moving());
    let at = |pod: &Pod| pod.node.clone().or_else(|| asked(pod));
    if let Some(ticket) = ticket {
        let new = |pod: &&Pod| !ticket.others.contains(&pod.key.name);
        if !live()
            .filter(new)
            .any(|pod| at(pod).as_ref() == Some(&ticket.to))
        {
            return Some(Place {
                node: ticket.to.clone(),
                why: format!("a pod of {} is moving there", ticket.service),
            });
        }
    }
    let all = f64::from(wanted.values().sum::<u32>());
    let pods = live().count() as f64 + 1.0;
    let missing = |node: &str, wanted: u32| {
        let there = live()
            .filter(|pod| at(pod).as_deref() == Some(node))
            .count();
        f64::from(wanted) / all * pods - there as f64
    };
    let missing = wanted
        .iter()
        .map(|(node, wanted)| (missing(node, *wanted), node));
    let most = missing.reduce(|one, other| if other.0 > one.0 { other } else { one });
    let (_, node) = most.filter(|(missing, _)| *missing > 0.0)?;
    Some(Place {
        node: node.clone(),
        why: "the node with the fewest replicas of its service".to_owned(),
    })
}

/// Returns the preferred node that a pod was created with.
fn asked(pod: &Pod) -> Option<String> {
    let said = pod.annotations.get(PLACED)?;
    said.split_once(": ").map(|(node, _)| node.to_owned())
}

/// Adds the preference to a pod. Returns false if the pod already has one, or a setting that cannot be extended.
pub fn ask(pod: &mut Value, place: &Place) -> bool {
    let preferred = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
    let known = pod.pointer(&format!(
        "/metadata/annotations/{}",
        PLACED.replace('/', "~1")
    ));
    let list = pod.pointer(preferred);
    let odd = [
        "/metadata",
        "/metadata/annotations",
        "/spec/affinity",
        "/spec/affinity/nodeAffinity",
    ];
    let odd = odd.iter().filter_map(|path| pod.pointer(path));
    if known.is_some()
        || !pod["spec"].is_object()
        || !list.is_none_or(|list| list.is_array() || list.is_null())
        || odd
            .into_iter()
            .any(|value| !(value.is_object() || value.is_null()))
    {
        return false;
    }
    // The node is selected by its name, which is unique; on some nodes the label `kubernetes.io/hostname` differs
    // from it.
    let name = json!({"key": "metadata.name", "operator": "In", "values": [place.node]});
    let term = json!({"weight": 100, "preference": {"matchFields": [name]}});
    let affinity = &mut pod["spec"]["affinity"]["nodeAffinity"];
    match affinity["preferredDuringSchedulingIgnoredDuringExecution"].as_array_mut() {
        Some(list) => list.push(term),
        None => affinity["preferredDuringSchedulingIgnoredDuringExecution"] = json!([term]),
    }
    // By default the scheduler spreads the pods of a ReplicaSet over nodes and zones, unless the pod has its own
    // constraints. This default weighs as much as the preference. A constraint that counts no pods results in
    // the same score for every node.
    let spread = &mut pod["spec"]["topologySpreadConstraints"];
    if spread.is_null() || spread.as_array().is_some_and(Vec::is_empty) {
        *spread = json!([{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
        }]);
    }
    pod["metadata"]["annotations"][PLACED] = json!(format!("{}: {}", place.node, place.why));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: Option<&str>, asked: Option<&str>) -> Pod {
        let mut pod = Pod {
            node: node.map(str::to_owned),
            ..Pod::default()
        };
        pod.key.name = name.to_owned();
        if let Some(asked) = asked {
            let said = format!("{asked}: why");
            pod.annotations.insert(PLACED.to_owned(), said);
        }
        pod
    }

    fn spread(counts: &[(&str, u32)]) -> Spread {
        counts
            .iter()
            .map(|(node, count)| ((*node).to_owned(), *count))
            .collect()
    }

    #[test]
    fn most_are_missing_where_the_next_one_goes() {
        let wanted = spread(&[("n1", 1), ("n2", 2)]);
        let node = |siblings: &[Pod]| choose(&wanted, siblings, None).map(|place| place.node);
        assert_eq!(node(&[]).as_deref(), Some("n2"));
        let on_n1 = pod("a", Some("n1"), None);
        assert_eq!(
            node(&[on_n1.clone(), pod("b", Some("n1"), None)]).as_deref(),
            Some("n2")
        );
        // Pods that only prefer a node count, too.
        let coming = [pod("b", None, Some("n2")), pod("c", None, Some("n2"))];
        assert_eq!(node(&coming).as_deref(), Some("n1"));
        // All three wanted pods are placed; a fourth one is placed by the shares, too.
        let all = [&coming[..], &[on_n1]].concat();
        assert_eq!(node(&all).as_deref(), Some("n2"));
        assert_eq!(choose(&Spread::new(), &[], None), None);
    }

    #[test]
    fn a_successor_goes_where_it_is_wanted() {
        let wanted = spread(&[("n1", 2), ("n3", 1)]);
        let ticket = Ticket {
            to: "n3".to_owned(),
            others: vec!["a".to_owned()],
            ..Ticket::default()
        };
        let a = pod("a", Some("n3"), None);
        let place = choose(&wanted, std::slice::from_ref(&a), Some(&ticket)).unwrap();
        assert_eq!(place.node, "n3");
        let there = pod("b", None, Some("n3"));
        let next = choose(&wanted, &[a, there], Some(&ticket)).unwrap();
        assert_eq!(next.node, "n1", "there already is one");
    }

    #[test]
    fn what_a_pod_says_itself_stays() {
        let place = Place {
            node: "n2".to_owned(),
            why: "why".to_owned(),
        };
        let own = json!({"weight": 1, "preference": {"matchExpressions": []}});
        let constraint =
            json!({"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
        let mut said = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [own]}},
            "topologySpreadConstraints": [constraint]}});
        assert!(ask(&mut said, &place));
        let list = &said["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!((&list[0], &list[1]["weight"]), (&own, &json!(100)));
        assert_eq!(
            said["spec"]["topologySpreadConstraints"],
            json!([constraint])
        );
        assert_eq!(
            said["metadata"]["annotations"],
            json!({"a": "b", PLACED: "n2: why"})
        );
        // A second call does not change the pod.
        let before = said.clone();
        assert!(!ask(&mut said, &place));
        assert_eq!(said, before);
        let mut plain = json!({"metadata": {}, "spec": {}});
        assert!(ask(&mut plain, &place));
        assert_eq!(
            plain["spec"]["topologySpreadConstraints"][0]["whenUnsatisfiable"],
            "ScheduleAnyway"
        );
        for odd in [
            json!({}),
            json!({"spec": {"affinity": 1}}),
            json!({"spec": {}, "metadata": {"annotations": []}}),
        ] {
            let mut pod = odd.clone();
            assert!(!ask(&mut pod, &place), "{odd}");
            assert_eq!(pod, odd);
        }
    }
}
