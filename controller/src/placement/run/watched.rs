//! The watched pods and workloads in namespaces with a policy or a moving pod.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::{Operator, Unit};
use crate::crd::PlacementPolicy;
use crate::placement::api::{Objects, Workloads};
use crate::placement::pod::Pod;
use crate::reconcile::Cache;
use crate::reconcile::cache::key;
use crate::reconcile::policies::pods;

impl Operator {
    /// Returns the moving pods.
    pub(super) fn under_way(&self) -> Vec<Pod> {
        let mut pods: Vec<Pod> = self.moving.all().iter().map(|pod| read(pod)).collect();
        pods.retain(|pod| !pod.ends);
        pods
    }

    /// Returns the pods of a namespace, and starts to watch them if necessary; `None` until they are listed.
    pub(super) fn pods_of(&mut self, namespace: &str) -> Option<Cache<core::Pod>> {
        let (client, watches) = (&self.options.client, &self.watches);
        let (moving, policies) = (&self.moving, &self.policies);
        let pods = self.pods.entry(namespace.to_owned()).or_insert_with(|| {
            let moving = of_namespace(moving, namespace);
            let (policies, waiting) = (policies.clone(), moving.clone());
            let listed = move || {
                let policies = policies.all();
                let policies = policies.iter().map(|one| Unit::Policy(key(&**one).name));
                policies.chain(waiting()).collect()
            };
            watches.open(pods(client, namespace), move |_| moving(), listed)
        });
        pods.is_complete().then(|| pods.clone())
    }

    /// Ends the watches of namespaces without a policy or a moving pod.
    pub(super) fn close_unused(&mut self) {
        let moving = self.moving.all();
        let moving = moving
            .iter()
            .filter_map(|pod| pod.metadata.namespace.clone());
        let moving: BTreeSet<String> = moving.collect();
        let policies = self.policies.all();
        let used = |namespace: &String| {
            let selects =
                |policy: &Arc<PlacementPolicy>| policy.spec.namespaces.contains(namespace);
            moving.contains(namespace) || policies.iter().any(selects)
        };
        self.pods.retain(|namespace, _| used(namespace));
        self.workloads
            .retain(|namespace, _| moving.contains(namespace));
    }

    /// Returns the pods of a policy's namespaces; `None` until they are listed.
    pub(super) fn selected(&mut self, policy: &PlacementPolicy) -> Option<Vec<Pod>> {
        let namespaces = policy.spec.namespaces.iter();
        // All watches are opened at once.
        let caches: Vec<_> = namespaces
            .map(|namespace| self.pods_of(namespace))
            .collect();
        let caches: Option<Vec<_>> = caches.into_iter().collect();
        let pods = caches?.into_iter().flat_map(|cache| cache.all());
        Some(pods.map(|pod| read(&pod)).collect())
    }

    /// Returns the objects of a namespace with moving pods, and starts to watch them if necessary; `None` until they
    /// are listed.
    pub(super) fn objects(&mut self, namespace: &str) -> Option<Objects> {
        let pods = self.pods_of(namespace);
        let (client, watches) = (&self.options.client, &self.watches);
        let moving = &self.moving;
        let workloads = self.workloads.entry(namespace.to_owned());
        let workloads = workloads.or_insert_with(|| {
            Workloads::open(client, watches, namespace, of_namespace(moving, namespace))
        });
        let complete = workloads.is_complete();
        pods.filter(|_| complete)
            .map(|pods| workloads.objects(&pods))
    }
}

/// Returns a function that lists the moving pods of a namespace.
fn of_namespace(
    moving: &Cache<core::Pod>,
    namespace: &str,
) -> impl Fn() -> Vec<Unit> + Clone + Send + Sync + 'static {
    let (moving, namespace) = (moving.clone(), namespace.to_owned());
    move || {
        let beside = moving.filter(|pod| pod.metadata.namespace.as_ref() == Some(&namespace));
        beside.iter().map(|pod| Unit::Pod(key(&**pod))).collect()
    }
}

/// Reads a pod.
pub(super) fn read(pod: &core::Pod) -> Pod {
    Pod::read(&serde_json::to_value(pod).unwrap_or_default())
}
