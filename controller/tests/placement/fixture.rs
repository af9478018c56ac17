//! A model of a cluster with one Deployment: what an API server, the controllers of ReplicaSets and Deployments, a
//! scheduler, kubelets and users do.

use std::collections::BTreeMap;

use maglor_controller::placement::moving::{self, Deployment, Seen, Step, Ticket, next};
use maglor_controller::placement::pod::{Pod, ReplicaSet};
use maglor_controller::placement::{DELETION_COST, HASH, MOVING};
use serde_json::{Value, json};

/// The preferred node of a pod.
const TO: &str = "n2";
/// A new pod may take so long.
const PATIENCE: i64 = 60;

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Happens {
    /// The operator begins a move, if none is under way.
    Begin,
    /// The operator observes, and remembers its next step.
    Look,
    /// The operator executes the remembered step, however old it is.
    Act,
    /// The operator forgets everything.
    Crash,
    /// The controller of ReplicaSets comes one step further.
    ReplicaSets,
    /// The controller of Deployments does.
    Deployment,
    /// A pod without a node gets the preferred node, or another.
    Schedule(u8),
    /// A pod with a node becomes ready.
    Ready,
    /// A pod that ends has ended.
    End,
    /// So many seconds pass.
    Time(i64),
    /// So many pods are wanted.
    Scale(usize),
    /// Another version is wanted.
    Rollout,
    /// A budget forbids evictions, or does no longer.
    Budget(bool),
    /// The Deployment and the objects that it owns are deleted.
    Delete,
}

/// See the module's documentation.
pub(crate) struct Fixture {
    pods: Vec<Value>,
    /// The desired replicas of ReplicaSets, by hash; the newest last.
    sets: Vec<(String, usize)>,
    wanted: usize,
    /// The minimum number of pods: the desired number, once it has been reached.
    required: usize,
    now: i64,
    count: u64,
    blocked: bool,
    /// The scheduler follows the preferences of pods.
    pub(crate) obeys: bool,
    plan: Option<(Seen, Ticket, Step)>,
}

pub(crate) fn sibling(name: &str, node: &str) -> Pod {
    let mut pod = Pod {
        node: Some(node.to_owned()),
        ..Pod::default()
    };
    pod.key.name = name.to_owned();
    pod
}

fn is_ready(pod: &Value) -> bool {
    let pod = Pod::read(pod);
    pod.ready && !pod.ends
}

fn is_owned(pod: &Value, hash: &str) -> bool {
    pod["metadata"]["ownerReferences"][0]["name"] == format!("web-{hash}")
}

/// RFC 7396.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut into[name], value);
        }
    }
}

impl Fixture {
    pub(crate) fn new(replicas: usize) -> Self {
        let mut fixture = Self {
            pods: Vec::new(),
            sets: vec![("h0".to_owned(), replicas)],
            wanted: replicas,
            required: replicas,
            now: 0,
            count: 0,
            blocked: false,
            obeys: true,
            plan: None,
        };
        for _ in 0..replicas {
            fixture.create("h0");
        }
        for pod in &mut fixture.pods {
            pod["spec"]["nodeName"] = json!("n1");
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        }
        fixture
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = &Value> {
        self.pods.iter()
    }

    pub(crate) fn nodes(&self) -> Vec<&str> {
        let nodes = self
            .pods
            .iter()
            .filter_map(|pod| pod["spec"]["nodeName"].as_str());
        let mut nodes: Vec<&str> = nodes.collect();
        nodes.sort_unstable();
        nodes
    }

    fn create(&mut self, hash: &str) {
        self.count += 1;
        let name = format!("web-{hash}-{}", self.count);
        self.pods.push(json!({
            "metadata": {"namespace": "shop", "name": name, "uid": format!("u{}", self.count),
                "resourceVersion": "1", "labels": {"app": "web", HASH: hash}, "annotations": {},
                "ownerReferences": [{"kind": "ReplicaSet", "name": format!("web-{hash}"), "controller": true}]},
            "spec": {}, "status": {},
        }));
    }

    /// Changes a pod; its version is another one then.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Value)) {
        self.count += 1;
        let version = self.count.to_string();
        let pod = &mut self.pods[at];
        change(pod);
        pod["metadata"]["resourceVersion"] = json!(version);
    }

    pub(crate) fn make(&mut self, one: &Happens) {
        match one {
            Happens::Begin => self.begin(),
            Happens::Look => self.look(),
            Happens::Act => drop(self.act()),
            Happens::Crash => self.plan = None,
            Happens::ReplicaSets => drop(self.replica_sets()),
            Happens::Deployment => drop(self.deployment()),
            Happens::Schedule(choice) => drop(self.schedule(*choice)),
            Happens::Ready => drop(self.ready()),
            Happens::End => drop(self.end()),
            Happens::Time(seconds) => self.now += seconds,
            Happens::Scale(wanted) => {
                self.wanted = *wanted;
                self.required = self.required.min(*wanted);
            }
            Happens::Rollout => {
                self.count += 1;
                let hash = format!("h{}", self.count);
                self.sets.push((hash, 0));
            }
            Happens::Budget(blocked) => self.blocked = *blocked,
            Happens::Delete => {
                self.sets.clear();
                (self.wanted, self.required) = (0, 0);
                // Garbage collection of objects whose owner was deleted.
                for at in 0..self.pods.len() {
                    if !self.pods[at]["metadata"]["ownerReferences"].is_null() {
                        self.delete(at);
                    }
                }
            }
        }
        if self.available().values().sum::<usize>() >= self.wanted {
            self.required = self.wanted;
        }
    }

    /// Ready pods, by ReplicaSet; without those that are to be scaled down.
    fn available(&self) -> BTreeMap<String, usize> {
        let ready = |hash: &str| {
            let own = self.pods.iter();
            own.filter(|pod| is_owned(pod, hash) && is_ready(pod))
                .count()
        };
        let sets = self.sets.iter();
        sets.map(|(hash, replicas)| (hash.clone(), ready(hash).min(*replicas)))
            .collect()
    }

    fn moving(&self) -> Option<usize> {
        let mut pods = self.pods.iter().map(Pod::read);
        pods.position(|pod| pod.is_moving() && !pod.ends)
    }

    fn begin(&mut self) {
        let here = |pod: &&Pod| pod.ready && !pod.ends && pod.node.as_deref() == Some("n1");
        let pods: Vec<Pod> = self.pods.iter().map(Pod::read).collect();
        let free = |pod: &&Pod| pod.deployment().is_some() && !pod.is_moving();
        let found = pods.iter().filter(free).find(here);
        let (None, Some(pod)) = (self.moving(), found) else {
            return;
        };
        let (hash, set) = (pod.deployment().unwrap().0, pod.replica_set().unwrap());
        let of_set = |other: &&Pod| other.replica_set() == Some(set) && other.uid != pod.uid;
        let ticket = Ticket {
            service: "shop/web".to_owned(),
            to: TO.to_owned(),
            replica_set: set.to_owned(),
            hash: hash.to_owned(),
            others: pods
                .iter()
                .filter(of_set)
                .map(|other| other.key.name.clone())
                .collect(),
            deadline: self.now + PATIENCE,
            ..Ticket::default()
        };
        self.patch(pod, &moving::begin(&ticket));
    }

    /// A patch with the version that was seen; false where it is another one by now.
    fn patch(&mut self, seen: &Pod, patch: &Value) -> bool {
        let named = |pod: &Value| pod["metadata"]["name"] == seen.key.name.as_str();
        let Some(at) = self.pods.iter().position(named) else {
            return false;
        };
        if self.pods[at]["metadata"]["resourceVersion"] != seen.version.as_str() {
            return false;
        }
        self.change(at, |pod| merge(pod, patch));
        true
    }

    fn look(&mut self) {
        self.plan = None;
        let Some(at) = self.moving() else { return };
        let pod = Pod::read(&self.pods[at]);
        let ticket = pod.ticket().unwrap();
        let hash = ticket.hash.clone();
        let set = self.sets.iter().find(|(one, _)| *one == hash);
        let siblings = self.pods.iter().filter(|pod| is_owned(pod, &hash));
        let siblings = siblings.filter(|pod| pod["metadata"]["labels"][HASH] == hash.as_str());
        let seen = Seen {
            set: set.map(|(_, replicas)| ReplicaSet {
                replicas: u32::try_from(*replicas).unwrap(),
            }),
            deployment: (!self.sets.is_empty()).then(|| self.whole()),
            siblings: siblings.map(Pod::read).filter(|pod| !pod.ends).collect(),
            pod,
        };
        let step = next(&seen, &ticket, self.now);
        self.plan = Some((seen, ticket, step));
    }

    /// The Deployment, as its own pods are.
    fn whole(&self) -> Deployment {
        let ready = |hash: &str| {
            let own = self
                .pods
                .iter()
                .filter(|pod| is_owned(pod, hash) && is_ready(pod));
            own.filter(|pod| !Pod::read(pod).is_moving()).count()
        };
        let sets = self.sets.iter();
        let ready: usize = sets
            .map(|(hash, replicas)| ready(hash).min(*replicas))
            .sum();
        Deployment {
            replicas: u32::try_from(self.wanted).unwrap(),
            ready: u32::try_from(ready).unwrap(),
            rolling: self
                .sets
                .iter()
                .filter(|(_, replicas)| *replicas > 0)
                .count()
                > 1,
        }
    }

    /// The executed step, if any.
    fn act(&mut self) -> Option<&'static str> {
        let (seen, ticket, step) = self.plan.take()?;
        let pod = &seen.pod;
        match step {
            Step::Evict => {
                let same = |one: &Value| one["metadata"]["uid"] == pod.uid.as_str();
                let at = self.pods.iter().position(same)?;
                let version = &self.pods[at]["metadata"]["resourceVersion"];
                if self.blocked || *version != pod.version.as_str() {
                    return None;
                }
                self.delete(at);
                Some("evict")
            }
            Step::Clear => {
                let done = self.patch(pod, &moving::clear());
                done.then_some("clear")
            }
            Step::GiveBack(_) => {
                let done = self.patch(pod, &moving::revert(&ticket));
                done.then_some("give back")
            }
            Step::Mark(other) => {
                let done = self.patch(&other, &moving::mark());
                done.then_some("mark")
            }
            Step::Wait => None,
        }
    }

    fn delete(&mut self, at: usize) {
        let now = json!("now");
        self.change(at, |pod| pod["metadata"]["deletionTimestamp"] = now);
    }

    /// Releases pods that it does not select, adopts those that it does, and creates or removes one.
    fn replica_sets(&mut self) -> bool {
        let stays = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_null();
        for (hash, replicas) in self.sets.clone() {
            let owner =
                json!([{"kind": "ReplicaSet", "name": format!("web-{hash}"), "controller": true}]);
            for at in 0..self.pods.len() {
                let pod = &self.pods[at];
                let selected = pod["metadata"]["labels"][HASH] == hash.as_str();
                let owned = is_owned(pod, &hash);
                if stays(pod) && selected != owned {
                    let free = pod["metadata"]["ownerReferences"].is_null();
                    if owned {
                        self.change(at, |pod| {
                            merge(pod, &json!({"metadata": {"ownerReferences": null}}));
                        });
                        return true;
                    }
                    if free {
                        self.change(at, |pod| pod["metadata"]["ownerReferences"] = owner);
                        return true;
                    }
                }
            }
            let mut own: Vec<usize> = (0..self.pods.len())
                .filter(|at| is_owned(&self.pods[*at], &hash) && stays(&self.pods[*at]))
                .collect();
            if own.len() < replicas {
                self.create(&hash);
                return true;
            }
            if own.len() > replicas {
                own.sort_by_key(|at| {
                    let pod = &self.pods[*at];
                    let cost = pod["metadata"]["annotations"][DELETION_COST].as_str();
                    let cost: i64 = cost.map_or(0, |cost| cost.parse().unwrap());
                    (!pod["spec"]["nodeName"].is_null(), is_ready(pod), cost)
                });
                self.delete(own[0]);
                return true;
            }
        }
        false
    }

    /// One more of the newest, or one less of the others, as in a rollout with a surge of one and none unavailable.
    fn deployment(&mut self) -> bool {
        let all: usize = self.sets.iter().map(|(_, replicas)| replicas).sum();
        let counts = self.available();
        let available: usize = counts.values().sum();
        let wanted = self.wanted;
        let Some((newest, older)) = self.sets.split_last_mut() else {
            return false;
        };
        let old: usize = older.iter().map(|(_, replicas)| replicas).sum();
        if newest.1 < wanted && all < wanted + usize::from(old > 0) {
            newest.1 += 1;
            return true;
        }
        if newest.1 > wanted {
            newest.1 = wanted;
            return true;
        }
        // Pods that may be removed, including unavailable ones (`reconcileOldReplicaSets`).
        let missing = newest.1 - counts[newest.0.as_str()];
        if all <= wanted + missing {
            return false;
        }
        let unhealthy = |(hash, replicas): &&mut (String, usize)| counts[hash.as_str()] < *replicas;
        let found = match older.iter_mut().find(unhealthy) {
            Some(found) => Some(found),
            None if available > wanted => older.iter_mut().find(|(_, replicas)| *replicas > 0),
            None => None,
        };
        let Some((_, replicas)) = found else {
            return false;
        };
        *replicas -= 1;
        true
    }

    fn schedule(&mut self, choice: u8) -> bool {
        let homeless = |pod: &Value| pod["spec"]["nodeName"].is_null();
        let Some(at) = self.pods.iter().position(homeless) else {
            return false;
        };
        let node = if choice > 0 && self.obeys { TO } else { "n1" };
        self.change(at, |pod| pod["spec"]["nodeName"] = json!(node));
        true
    }

    fn ready(&mut self) -> bool {
        let starts = |pod: &Value| !pod["spec"]["nodeName"].is_null() && !Pod::read(pod).ready;
        let Some(at) = self.pods.iter().position(starts) else {
            return false;
        };
        let ready = json!([{"type": "Ready", "status": "True"}]);
        self.change(at, |pod| pod["status"]["conditions"] = ready);
        true
    }

    fn end(&mut self) -> bool {
        let ends = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
        let found = self.pods.iter().position(ends);
        if let Some(at) = found {
            self.pods.remove(at);
        }
        found.is_some()
    }

    pub(crate) fn check(&self, after: &Happens) {
        let ready = self.pods.iter().filter(|pod| is_ready(pod)).count();
        assert!(
            ready >= self.required,
            "{ready} of {} are ready after {after:?}: {:#?}",
            self.required,
            self.pods
        );
        let moving = self
            .pods
            .iter()
            .map(Pod::read)
            .filter(|pod| pod.is_moving() && !pod.ends);
        assert!(moving.count() <= 1, "after {after:?}");
    }

    /// Runs all controllers until nothing changes; returns the operator's steps.
    pub(crate) fn settle(&mut self) -> Vec<&'static str> {
        let mut done = Vec::new();
        for _ in 0..1000 {
            let mut changed = self.replica_sets() | self.deployment() | self.schedule(1);
            changed |= self.ready() | self.end();
            self.look();
            if let Some(step) = self.act() {
                done.push(step);
                changed = true;
            }
            self.make(&Happens::Time(1));
            if self.required > 0 {
                self.check(&Happens::Time(1));
            }
            if !changed && (self.moving().is_none() || self.blocked) {
                return done;
            }
        }
        panic!("there is no end: {:#?} {:#?}", self.sets, self.pods);
    }

    /// As many as wanted, all of them ready, and none on its way.
    pub(crate) fn check_end(&mut self) {
        self.blocked = false;
        self.settle();
        assert_eq!(self.pods.len(), self.wanted, "{:#?}", self.pods);
        for pod in &self.pods {
            assert!(is_ready(pod), "{pod:#}");
            let meta = &pod["metadata"];
            assert!(
                meta["labels"][MOVING].is_null() && meta["annotations"][MOVING].is_null(),
                "{pod:#}"
            );
            assert!(!meta["ownerReferences"].is_null(), "{pod:#}");
        }
    }
}
