//! The usage of each container of a service, tracked like that of replicas, and the recommended requests.

use std::collections::BTreeMap;
use std::time::Duration;

use maglor_balance::Time;

use super::histogram::Histogram;
use super::hold::Hold;
use super::memory::Memory;
use super::observed::ServiceUse;
use super::params::{Params, Resources};
use super::resource_request::{cpu_request, memory_request};
use super::{Advised, ContainerAdvice};

/// The minimum CPU request of a container, in thousandths of a core.
const LEAST_CPU: u64 = 5;
/// The minimum memory request of a container, in MiB.
const LEAST_MEMORY: u64 = 4;

/// The containers of a service, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Containers(BTreeMap<String, Track>);

#[derive(Clone, Debug)]
struct Track {
    seen: Time,
    /// The CPU usage of the container in all replicas together.
    cpu: Histogram,
    cpu_planned: Hold,
    memory: Memory,
}

impl Track {
    fn new(resources: &Resources) -> Self {
        Self {
            seen: Time::ZERO,
            cpu: Histogram::new(resources.half_life),
            cpu_planned: Hold::default(),
            memory: Memory::new(resources),
        }
    }

    fn cpu(&self, replicas: u32, params: &Params) -> Option<Advised<u64>> {
        let used = self.cpu_planned.known()?;
        let most = params.resources.most_cpu_millis.max(LEAST_CPU);
        Some(cpu_request(used, replicas, (LEAST_CPU, most), params))
    }

    fn memory(&self, params: &Params) -> Option<Advised<u64>> {
        let most = params.resources.most_memory_mib.max(LEAST_MEMORY);
        memory_request(&self.memory, (LEAST_MEMORY, most), params)
    }
}

impl Containers {
    /// Adds samples of the present usage. Containers that have not been observed for an hour are removed.
    pub(super) fn observe(&mut self, now: Time, service: &ServiceUse, params: &Params) {
        const FORGET: Duration = Duration::from_secs(3600);
        let resources = &params.resources;
        for one in &service.containers {
            let track = self.0.entry(one.name.clone());
            let track = track.or_insert_with(|| Track::new(resources));
            track.seen = now;
            let used = one.cpu_used_millis * f64::from(service.replicas.max(1));
            track.cpu.add(now, used);
            let used = track.cpu.quantile(resources.quantile);
            track.cpu_planned.follow(now, used, resources.band);
            track.memory.add(now, one.memory_used_mib, resources);
        }
        let fresh = |track: &Track| now.saturating_since(track.seen) < FORGET;
        self.0.retain(|_, track| fresh(track));
    }

    /// Returns the recommended requests of each container of a replica, for this replica count; without CPU if an
    /// autoscaler scales by it.
    pub(super) fn advise(
        &self,
        replicas: u32,
        autoscaled: bool,
        params: &Params,
    ) -> Vec<ContainerAdvice> {
        let each = self.0.iter().map(|(name, track)| ContainerAdvice {
            name: name.clone(),
            cpu_millis: track.cpu(replicas, params).filter(|_| !autoscaled),
            memory_mib: track.memory(params),
        });
        each.collect()
    }
}
