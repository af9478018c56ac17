//! Processor time and memory of the application, the data plane and the control plane: the processes of pods, by the
//! containers that they are in.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::Cluster;
use serde_json::Value;

use super::Way;
use super::application::CONTAINERS;
use crate::error::{Doing, Error, Result};
use crate::procfs::{self, Share};

/// What a container belongs to.
#[derive(Debug, Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Class {
    Application,
    /// Sidecars and the gateway.
    DataPlane,
    ControlPlane,
}

impl Class {
    pub(super) const ALL: [Self; 3] = [Self::Application, Self::DataPlane, Self::ControlPlane];
}

/// The use of a period, by [`Class::ALL`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    /// Processors.
    pub(super) cores: [f64; 3],
    /// Memory at the end of the period, of which each process has its share of common pages.
    pub(super) memory: [Share; 3],
    /// Processors that the whole machine used, without the users.
    pub(super) machine: f64,
}

/// The processes of a way, and the processor time that they have used.
#[derive(Debug)]
pub(super) struct Meter {
    at: Instant,
    processes: BTreeMap<Class, Vec<u32>>,
    used: [Duration; 3],
    machine: Duration,
}

impl Meter {
    /// Begins a period.
    pub(super) fn start(cluster: &Cluster, way: Way) -> Result<Self> {
        let pods = cluster.kubectl().json(&["get", "pods", "-A"])?;
        let classes = classes(&pods, way);
        let mut processes = BTreeMap::<Class, Vec<u32>>::new();
        for node in cluster.nodes() {
            for pid in procfs::tree(node.init()) {
                // It may have ended.
                let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
                if let Some(class) = class_of(&groups, &classes) {
                    processes.entry(class).or_default().push(pid);
                }
            }
        }
        if !processes.contains_key(&Class::Application) {
            return Err(Error::parse("the processes of pods", "no application"));
        }
        let mut meter = Self {
            at: Instant::now(),
            used: [Duration::ZERO; 3],
            machine: machine()?,
            processes,
        };
        meter.used = meter.cpu()?;
        Ok(meter)
    }

    /// Ends the period.
    pub(super) fn end(&self) -> Result<Usage> {
        let seconds = self.at.elapsed().as_secs_f64().max(1e-9);
        let mut usage = Usage {
            machine: machine()?.saturating_sub(self.machine).as_secs_f64() / seconds,
            ..Usage::default()
        };
        let used = self.cpu()?.into_iter().zip(self.used);
        for (cores, (now, before)) in usage.cores.iter_mut().zip(used) {
            *cores = now.saturating_sub(before).as_secs_f64() / seconds;
        }
        for (memory, class) in usage.memory.iter_mut().zip(Class::ALL) {
            *memory = procfs::share(self.of(class))?;
        }
        Ok(usage)
    }

    fn of(&self, class: Class) -> &[u32] {
        self.processes.get(&class).map_or(&[], Vec::as_slice)
    }

    fn cpu(&self) -> Result<[Duration; 3]> {
        let mut used = [Duration::ZERO; 3];
        for (used, class) in used.iter_mut().zip(Class::ALL) {
            *used = procfs::cpu(self.of(class))?.run;
        }
        Ok(used)
    }
}

/// Returns the classes of the containers of a way, by their identifiers.
fn classes(pods: &Value, way: Way) -> BTreeMap<String, Class> {
    let mut classes = BTreeMap::new();
    for pod in pods["items"].as_array().into_iter().flatten() {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let is_application = namespace == way.namespace();
        if !is_application && way.control_plane() != Some(namespace) {
            continue;
        }
        for list in ["containerStatuses", "initContainerStatuses"] {
            for one in pod["status"][list].as_array().into_iter().flatten() {
                let name = one["name"].as_str().unwrap_or_default();
                let id = one["containerID"].as_str().unwrap_or_default();
                let Some((_, id)) = id.split_once("://") else {
                    continue;
                };
                let class = match is_application {
                    true if CONTAINERS.contains(&name) => Class::Application,
                    true => Class::DataPlane,
                    false => Class::ControlPlane,
                };
                classes.insert(id.to_owned(), class);
            }
        }
    }
    classes
}

/// Returns the class of a process by `/proc/PID/cgroup`.
fn class_of(groups: &str, classes: &BTreeMap<String, Class>) -> Option<Class> {
    let names = groups.lines().filter_map(|line| line.rsplit('/').next());
    let mut found = names.filter_map(|name| classes.get(name).copied());
    found.next()
}

/// Returns the processor time that the whole machine has used, without this program.
fn machine() -> Result<Duration> {
    let path = "/proc/stat";
    let ticks = busy(&fs::read_to_string(path).doing(path)?)?;
    let nanos = ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second());
    let own = procfs::cpu(&[std::process::id()])?.ticks;
    Ok(Duration::from_nanos(nanos).saturating_sub(own))
}

/// Returns the ticks in which a processor did something, from `/proc/stat`: user, nice, system, irq, softirq.
fn busy(text: &str) -> Result<u64> {
    let line = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("cpu "));
    let line = line.ok_or_else(|| Error::parse("/proc/stat", "no line `cpu`"))?;
    let ticks: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
    Ok([0, 1, 2, 5, 6]
        .iter()
        .filter_map(|index| ticks.get(*index))
        .sum())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_belong_to_the_way_that_is_measured() {
        let pod = |namespace: &str, own: &str, sidecar: &str| {
            json!({"metadata": {"namespace": namespace}, "status": {
                "containerStatuses": [{"name": own, "containerID": format!("containerd://{namespace}-{own}")}],
                "initContainerStatuses": [{"name": sidecar, "containerID": format!("containerd://{namespace}-{sidecar}")}],
            }})
        };
        let pods = json!({"items": [
            pod("bookinfo-maglor", "details", "maglor-proxy"),
            pod("bookinfo-istio", "details", "istio-proxy"),
            pod("maglor", "controller", "none"),
        ]});
        let classes = classes(&pods, Way::Maglor);
        let class = |group: &str| class_of(&format!("1:cpu:/x/{group}\n"), &classes);
        assert_eq!(class("bookinfo-maglor-details"), Some(Class::Application));
        assert_eq!(
            class("bookinfo-maglor-maglor-proxy"),
            Some(Class::DataPlane)
        );
        assert_eq!(class("maglor-controller"), Some(Class::ControlPlane));
        assert_eq!(class("bookinfo-istio-details"), None);
    }

    #[test]
    fn waiting_is_not_busy() {
        let text = "cpu  1 2 4 800 1600 8 16 3200 0 0\ncpu0 1 2 3\n";
        assert_eq!(busy(text).unwrap(), 1 + 2 + 4 + 8 + 16);
        assert!(busy("").is_err());
    }
}
