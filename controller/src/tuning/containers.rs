//! Requests of each container of a pod.
//!
//! Where it is known what each uses, it requests that and what is added for safety, and the pod as a whole is to
//! request the sum. Else it is known what the pod is to request, which its containers share as they do now. What
//! injected containers request is theirs in either way.

use maglor_service_graph::advise::{Advice, Advised, ContainerAdvice};
use maglor_service_graph::tune::Held;

use super::workload::Container;

/// Where it is shared out, no container requests less CPU, in thousandths of a core.
const LEAST_CPU: u64 = 5;
/// And less memory, in MiB.
const LEAST_MEMORY: u64 = 4;

/// What a container is to request; what is absent stays.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// In thousandths of a core.
    pub cpu_millis: Option<u64>,
    /// In MiB.
    pub memory_mib: Option<u64>,
    /// Its limit, where that would be less than a quarter above what it requests.
    pub memory_limit_mib: Option<u64>,
}

/// What the containers of a template are to request each, in their order, if known of all of them and
/// nothing else manages it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Own {
    /// In thousandths of a core; none more than its limit.
    cpu: Option<Vec<u64>>,
    /// In MiB.
    memory: Option<Vec<u64>>,
}

impl Own {
    /// From what is advised.
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

    /// Puts into an advice what a pod requests by this, with what is injected into it.
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

/// What each container is to request where the pod requests so much CPU, in thousandths of a core, and memory, in
/// MiB.
///
/// What injected containers request is theirs. The others request their own, if known; else as much of the
/// rest as they request of it now, and where none requests anything the first gets it. None gets more than its limit
/// of CPU; its limit of memory is raised.
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

/// Which containers request something else than their own, in words; `None` where none does by more than `margin`,
/// 0–1, of what it requests.
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

/// In proportion to what is there; 0 for who has nothing.
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
