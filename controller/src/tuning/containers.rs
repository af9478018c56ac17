//! What each container of a pod requests, where it is known what the pod as a whole is to request.

use super::workload::Container;

/// No container requests less CPU, in thousandths of a core.
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

/// Shares out what a pod is to request in all. What injected containers request is theirs; the others get as much of the
/// rest as they request of it now, and where none requests anything the first gets it. None gets more than its limit of
/// CPU; its limit of memory is raised.
#[must_use]
pub fn share(containers: &[Container], injected: (u64, u64), cpu: u64, memory: u64) -> Vec<Share> {
    let present = |of: fn(&Container) -> u64| -> Vec<u64> { containers.iter().map(of).collect() };
    let cpu = divide(
        &present(|one| one.cpu_millis),
        cpu.saturating_sub(injected.0),
        LEAST_CPU,
    );
    let memory = memory.saturating_sub(injected.1);
    let memory = divide(&present(|one| one.memory_mib), memory, LEAST_MEMORY);
    let shares = containers.iter().zip(cpu.into_iter().zip(memory));
    let shares = shares.map(|(one, (cpu, memory))| {
        let cpu = cpu.min(one.cpu_limit_millis.unwrap_or(u64::MAX));
        let changed = |value: u64, present: u64| (value > 0 && value != present).then_some(value);
        let room = memory + memory / 4;
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
mod tests {
    use super::*;

    fn container(name: &str, cpu_millis: u64, memory_mib: u64) -> Container {
        Container {
            name: name.to_owned(),
            cpu_millis,
            memory_mib,
            ..Container::default()
        }
    }

    fn set(name: &str, cpu_millis: Option<u64>, memory_mib: Option<u64>) -> Share {
        Share {
            name: name.to_owned(),
            cpu_millis,
            memory_mib,
            memory_limit_mib: None,
        }
    }

    #[test]
    fn what_is_injected_keeps_its_own() {
        let one = [container("app", 100, 64)];
        assert_eq!(share(&one, (10, 16), 60, 80), [set("app", Some(50), None)]);
        assert_eq!(share(&one, (10, 16), 110, 80), [], "as it is");
        assert_eq!(
            share(&one, (90, 16), 25, 24),
            [set("app", Some(5), Some(8))]
        );
    }

    #[test]
    fn containers_share_as_they_do_now() {
        let two = [
            container("app", 300, 0),
            container("log", 100, 0),
            container("idle", 0, 0),
        ];
        let shares = [set("app", Some(150), Some(40)), set("log", Some(50), None)];
        assert_eq!(share(&two, (0, 0), 200, 40), shares);
        let none = [container("app", 0, 0), container("log", 0, 0)];
        assert_eq!(
            share(&none, (10, 16), 35, 48),
            [set("app", Some(25), Some(32))]
        );
    }

    #[test]
    fn limits_are_kept_or_raised() {
        let mut one = container("app", 100, 100);
        (one.cpu_limit_millis, one.memory_limit_mib) = (Some(200), Some(128));
        let [share] = share(&[one], (0, 0), 300, 200).try_into().unwrap();
        assert_eq!((share.cpu_millis, share.memory_mib), (Some(200), Some(200)));
        assert_eq!(share.memory_limit_mib, Some(250));
    }
}
