//! CPU and memory requests derived from usage.

use super::Advised;
use super::memory::Memory;
use super::params::Params;
use super::track::ServiceTrack;
use super::words::{number, percent};

/// The granularity of CPU requests, in thousandths of a core.
const STEP: u64 = 5;

/// Returns the CPU request of a replica at this replica count. `None` if usage is unknown, or if an
/// autoscaler uses it.
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

/// Returns the CPU request of each replica, from their total usage, within the given minimum and
/// maximum.
pub(super) fn cpu_request(
    used: f64,
    replicas: u32,
    (least, most): (u64, u64),
    params: &Params,
) -> Advised<u64> {
    let p = &params.resources;
    let wanted = used / f64::from(replicas) * (1.0 + p.margin);
    let value = (wanted.ceil() as u64)
        .next_multiple_of(STEP)
        .max(least)
        .min(most);
    let bound = bound(value, wanted, most);
    let share = match replicas {
        1 => String::new(),
        _ => format!(", shared by {replicas} replicas"),
    };
    Advised::new(
        value,
        format!(
            "in {} of the time, usage is at most {}m{share}; with a margin of {} this is {}m{bound}",
            percent(p.quantile),
            number(used),
            percent(p.margin),
            number(wanted),
        ),
    )
}

/// Returns the memory request of a replica.
pub(super) fn memory(track: &ServiceTrack, params: &Params) -> Option<Advised<u64>> {
    let p = &params.resources;
    let bounds = (p.least_memory_mib, p.most_memory_mib.max(1));
    memory_request(&track.memory, bounds, params)
}

/// Returns a memory request within the given minimum and maximum. `None` if its usage is unknown.
pub(super) fn memory_request(
    memory: &Memory,
    (least, most): (u64, u64),
    params: &Params,
) -> Option<Advised<u64>> {
    let p = &params.resources;
    let (peak, usual) = (memory.peak()?, memory.usual()?);
    let swing = (peak / usual - 1.0).max(0.0);
    let (least_margin, most_margin) = p.memory_margin;
    let margin = (swing * p.memory_swing).clamp(least_margin, most_margin.max(least_margin));
    let wanted = peak * (1.0 + margin);
    // 10 MiB and a tenth are a little above 11 in binary.
    let value = ((wanted - 1e-9).ceil() as u64).max(least).min(most);
    let bound = bound(value, wanted, most);
    Some(Advised::new(
        value,
        format!(
            "a replica has used at most {} MiB, and {} in the median; with a margin of {} this is {} MiB{bound}",
            number(peak),
            number(usual),
            percent(margin),
            number(wanted),
        ),
    ))
}

/// Returns a higher memory limit if it is below the request, or too near; limits are never added or
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

fn bound(value: u64, wanted: f64, most: u64) -> &'static str {
    if value == most && wanted > most as f64 {
        ", above the maximum of a replica"
    } else if value as f64 > wanted + STEP as f64 {
        ", below the minimum"
    } else {
        ""
    }
}
