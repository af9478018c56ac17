//! The recommended CPU and memory requests of a service, and higher memory limits.

use super::Advised;
use super::params::Params;
use super::resource_request::{cpu_request, memory_request};
use super::track::ServiceTrack;

/// Returns the CPU request of a replica for this replica count; `None` if the usage is unknown, or if an autoscaler
/// scales by CPU.
pub(super) fn cpu(track: &ServiceTrack, replicas: u32, params: &Params) -> Option<Advised<u64>> {
    let p = &params.resources;
    if track.now.autoscaled {
        return None;
    }
    let used = track.cpu_planned.known()?;
    let most = track.now.cpu_limit_millis.unwrap_or(u64::MAX);
    let most = most.min(p.most_cpu_millis).max(1);
    let bounds = (p.least_cpu_millis, most);
    Some(cpu_request(used, replicas, bounds, params))
}

/// Returns the memory request of a replica.
pub(super) fn memory(track: &ServiceTrack, params: &Params) -> Option<Advised<u64>> {
    let p = &params.resources;
    let bounds = (p.least_memory_mib, p.most_memory_mib.max(1));
    memory_request(&track.memory, bounds, params)
}

/// Returns a higher memory limit if the present one is below the request, or too close to it. Limits are never added or
/// lowered.
pub(super) fn memory_limit(track: &ServiceTrack, params: &Params) -> Option<Advised<u64>> {
    let request = memory(track, params)?.value;
    let limit = track.now.memory_limit_mib?;
    let wanted = request + request / 4;
    (limit < wanted).then(|| {
        Advised::new(
            wanted,
            format!("the limit of {limit} MiB is less than the request of {request} MiB and a quarter more"),
        )
    })
}
