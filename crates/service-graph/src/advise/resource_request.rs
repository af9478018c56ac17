//! CPU and memory requests of a container or replica, derived from usage.

use super::Advised;
use super::memory::Memory;
use super::number_format::{number, percent};
use super::params::Params;

/// The granularity of CPU requests, in thousandths of a core.
const STEP: u64 = 5;

/// Returns the CPU request of each replica, derived from the usage of all replicas together, between a minimum and a
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

/// Returns the memory request, between a minimum and a maximum; `None` if the usage is unknown.
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

fn bound(value: u64, wanted: f64, most: u64) -> &'static str {
    if value == most && wanted > most as f64 {
        ", above the maximum of a replica"
    } else if value as f64 > wanted + STEP as f64 {
        ", below the minimum"
    } else {
        ""
    }
}
