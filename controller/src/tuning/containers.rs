//! Computes the resource requests of each container of a pod.
//!
//! If the usage of each container is known, each container requests its usage plus a safety margin, and the pod
//! requests the sum. Otherwise only the request of the whole pod is known, and its containers share it in proportion
//! to their current requests. The requests of injected containers are never changed.

use maglor_service_graph::advise::{Advice, Advised, ContainerAdvice};
use maglor_service_graph::tune::Held;

use super::workload::Container;
pub use super::workload::Share;

/// Minimum CPU of a container when the pod's request is shared, in thousandths of a core.
const LEAST_CPU: u64 = 5;
/// Minimum memory of a container in this case, in MiB.
const LEAST_MEMORY: u64 = 4;

/// The individual requests of a template's containers, in order. A resource is included if it is known for all
/// containers and no other manager sets it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Own {
    /// CPU of each container in thousandths of a core, at most the container's limit.
    cpu: Option<Vec<u64>>,
    /// Memory of each container in MiB.
    memory: Option<Vec<u64>>,
}

impl Own {
    /// Returns the requests from recommendations.
    #[must_use]
    pub fn of(containers: &[Container], advised: &[ContainerAdvice], held: Held) -> Self {
        let list = |of: fn(&ContainerAdvice) -> Option<&Advised<u64>>| -> Option<Vec<u64>> {
            let value = |one: &Container| {
                let known = advised.iter().find(|known| known.name == one.name);
                known.and_then(of).map(|advised| advised.value)
            };
            containers.iter().map(value).collect()
        };
        let known = !containers.is_empty();
        let cpu = list(|one| one.cpu_millis.as_ref()).filter(|_| known && !held.cpu);
        let limited = |values: Vec<u64>| {
            let each = containers.iter().zip(values);
            each.map(|(one, value)| value.min(one.cpu_limit_millis.unwrap_or(u64::MAX)))
                .collect()
        };
        Self {
            cpu: cpu.map(limited),
            memory: list(|one| one.memory_mib.as_ref()).filter(|_| known && !held.memory),
        }
    }

    /// Sets the total requests of the pod in an advice, including those of injected containers.
    pub fn put(&self, injected: (u64, u64), advice: &mut Advice) {
        let put = |into: &mut Option<Advised<u64>>, own: &Option<Vec<u64>>, injected: u64, unit| {
            if let (Some(into), Some(own)) = (into.as_mut(), own) {
                let sum = own
                    .iter()
                    .fold(injected, |sum, one| sum.saturating_add(*one));
                if sum != into.value {
                    let why = &into.reason;
                    into.reason = format!(
                        "{why}; the sum over containers is {sum}{unit}, of which {injected}{unit} are injected"
                    );
                    into.value = sum;
                }
            }
        };
        put(&mut advice.cpu_millis, &self.cpu, injected.0, "m");
        put(&mut advice.memory_mib, &self.memory, injected.1, "Mi");
    }
}

/// Returns the requests of each container for a total of the pod: CPU in thousandths of a core, and memory in MiB.
///
/// Injected containers keep their requests. The others get their individual requests if these are known. Otherwise
/// they share the rest in proportion to their current requests, or the first container gets all of it if there are
/// none. No container gets more CPU than its limit; memory limits are raised.
#[must_use]
pub fn share(
    containers: &[Container],
    injected: (u64, u64),
    (cpu, memory): (u64, u64),
    own: &Own,
) -> Vec<Share> {
    let present = |of: fn(&Container) -> u64| -> Vec<u64> { containers.iter().map(of).collect() };
    let cpu = match &own.cpu {
        Some(own) => own.clone(),
        None => {
            let rest = cpu.saturating_sub(injected.0);
            divide(&present(|one| one.cpu_millis), rest, LEAST_CPU)
        }
    };
    let memory = match &own.memory {
        Some(own) => own.clone(),
        None => {
            let rest = memory.saturating_sub(injected.1);
            divide(&present(|one| one.memory_mib), rest, LEAST_MEMORY)
        }
    };
    let shares = containers.iter().zip(cpu.into_iter().zip(memory));
    let shares = shares.map(|(one, (cpu, memory))| {
        let cpu = cpu.min(one.cpu_limit_millis.unwrap_or(u64::MAX));
        let changed = |value: u64, present: u64| (value > 0 && value != present).then_some(value);
        let room = memory.saturating_add(memory / 4);
        Share {
            name: one.name.clone(),
            cpu_millis: changed(cpu, one.cpu_millis),
            memory_mib: changed(memory, one.memory_mib),
            memory_limit_mib: one
                .memory_limit_mib
                .filter(|limit| *limit < room)
                .map(|_| room),
        }
    });
    shares
        .filter(|one| one.cpu_millis.is_some() || one.memory_mib.is_some())
        .collect()
}

/// Describes the containers whose requests differ from the individual ones; `None` if none differs by more than
/// `margin` (0 to 1) of its request.
#[must_use]
pub fn differ(containers: &[Container], own: &Own, margin: f64) -> Option<String> {
    let far = |own: &Option<Vec<u64>>, at: usize, present: u64, least: u64, unit: &str| {
        let value = *own.as_ref()?.get(at)?;
        let by = value.abs_diff(present);
        let far = by >= least && by as f64 > margin * present as f64;
        far.then(|| format!("{value}{unit} instead of {present}{unit}"))
    };
    let words = containers.iter().enumerate().filter_map(|(at, one)| {
        let cpu = far(&own.cpu, at, one.cpu_millis, LEAST_CPU, "m");
        let memory = far(&own.memory, at, one.memory_mib, LEAST_MEMORY, "Mi");
        let words: Vec<String> = cpu.into_iter().chain(memory).collect();
        (!words.is_empty()).then(|| format!("`{}` {}", one.name, words.join(" and ")))
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| format!("by usage of its containers: {}", words.join("; ")))
}

/// Divides `whole` in proportion to `present`; parts that are 0 stay 0.
fn divide(present: &[u64], whole: u64, least: u64) -> Vec<u64> {
    let sum: u64 = present.iter().sum();
    let each = present.iter().enumerate();
    let each = each.map(|(at, own)| match (sum, *own) {
        (0, _) if at == 0 => whole.max(least),
        (_, 0) => 0,
        (_, own) => {
            let part = u128::from(own) * u128::from(whole);
            let part = part.div_ceil(u128::from(sum));
            u64::try_from(part).unwrap_or(u64::MAX).max(least)
        }
    });
    each.collect()
}

#[cfg(test)]
mod tests;
