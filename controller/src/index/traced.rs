//! Determines the export of a workload's spans: `tracing` of the `MeshConfig`, and what Istio's `Telemetry` changes of
//! it, from the widest level to the narrowest: a root namespace, the workload's namespace, the workload.

use maglor_config::raw;
use maglor_manifests::istio::Telemetry;

use super::Index;
use super::facts::istio::ROOTS;
use super::facts::{Key, Kind, Workload};
use super::istio::{oldest, selecting};

impl Index {
    /// Returns the export of a workload's spans, with what the index knows about the workload; `None` if it exports
    /// none.
    pub(super) fn tracing(&self, pod: &Key, workload: &Workload) -> Option<raw::MeshTracing> {
        let mut tracing = self.mesh_spec()?.tracing.clone()?;
        let mut disabled = false;
        for telemetry in self.telemetry_of(pod, workload) {
            disabled = telemetry.disabled.unwrap_or(disabled);
            tracing.attributes.extend(telemetry.attributes.clone());
            if telemetry.percent.is_some() {
                let sampling = tracing.sampling.get_or_insert_default();
                sampling.percent = telemetry.percent;
            }
        }
        describe(&mut tracing, pod, workload);
        (!disabled).then_some(tracing)
    }

    /// Returns what applies to a workload, from the widest level to the narrowest; at each level, the oldest one.
    fn telemetry_of(&self, pod: &Key, workload: &Workload) -> impl Iterator<Item = &Telemetry> {
        let mesh = self.telemetry_of_mesh();
        let is_root = ROOTS.contains(&pod.namespace.as_str());
        let namespace = (!is_root).then(|| self.telemetry_at(&pod.namespace, None));
        let own = self.telemetry_at(&pod.namespace, Some(workload));
        let levels = [mesh, namespace.flatten(), own];
        levels.into_iter().flatten().map(|(_, telemetry)| telemetry)
    }

    /// Returns the oldest valid one of a namespace that selects a workload or, without a workload, all workloads.
    fn telemetry_at(
        &self,
        namespace: &str,
        workload: Option<&Workload>,
    ) -> Option<(&Key, &Telemetry)> {
        let all = self.in_namespace(&self.istio.telemetry, namespace);
        let selecting = selecting(all, workload, |telemetry| telemetry.selector.as_ref());
        oldest(selecting.map(|(age, key, telemetry)| (age, (key, telemetry))))
    }

    /// Returns why a valid `Telemetry` has no effect; `None` if it has one.
    pub(super) fn telemetry_without_effect(
        &self,
        key: &Key,
        value: &Telemetry,
    ) -> Option<(&'static str, String)> {
        if self.mesh_spec().is_none_or(|spec| spec.tracing.is_none()) {
            let what = "no spans are exported: set `tracing.collector` of the MeshConfig";
            return Some(("NoCollector", what.to_owned()));
        }
        let namespace = key.namespace.as_str();
        let (level, first) = match ROOTS.contains(&namespace) {
            true => ("the mesh".to_owned(), self.telemetry_of_mesh()),
            false => (
                format!("namespace {namespace}"),
                self.telemetry_at(namespace, None),
            ),
        };
        let (other, _) = first.filter(|(first, _)| value.selector.is_none() && *first != key)?;
        Some((
            "Conflicted",
            format!("the older Telemetry {other} applies to {level}"),
        ))
    }

    /// Returns the one for all workloads of the mesh.
    fn telemetry_of_mesh(&self) -> Option<(&Key, &Telemetry)> {
        ROOTS.iter().find_map(|root| self.telemetry_at(root, None))
    }

    /// Invalidates the pods to which a `Telemetry` of a namespace may apply, and the statuses of others.
    pub(super) fn invalidate_traced(&mut self, namespace: &str) {
        match ROOTS.contains(&namespace) {
            true => self.dirty.workloads.extend(self.workloads.keys().cloned()),
            false => self.invalidate_workloads(namespace),
        }
        self.invalidate_telemetry();
    }

    /// Invalidates the statuses of all `Telemetry`s.
    pub(super) fn invalidate_telemetry(&mut self) {
        let keys = self.istio.telemetry.keys().cloned();
        self.dirty
            .statuses
            .extend(keys.map(|key| (Kind::Telemetry, key)));
    }
}

/// Adds the service's name and the attributes that are not set.
fn describe(tracing: &mut raw::MeshTracing, pod: &Key, workload: &Workload) {
    let label = |name: &str| workload.labels.get(name);
    let name = label("app.kubernetes.io/name").or(label("app"));
    let name = name.unwrap_or(&workload.owner);
    tracing.service_name.get_or_insert_with(|| name.clone());
    let mut add = |key: &str, value: &str| {
        let entry = tracing.attributes.entry(key.to_owned());
        entry.or_insert_with(|| value.to_owned());
    };
    add("service.namespace", &pod.namespace);
    if let Some(node) = &workload.node {
        add("k8s.node.name", node);
    }
}
