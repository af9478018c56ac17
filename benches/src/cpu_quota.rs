//! A limit on processor time, as Kubernetes sets it for `limits.cpu`: a control group with a quota in each period.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Doing, Error, Result};

/// The period of the kubelet.
const PERIOD_US: u32 = 100_000;
/// The time for which a group may be busy after its processes have been killed.
const BUSY: Duration = Duration::from_secs(5);

/// A control group; removed on drop, when its processes have ended.
#[derive(Debug)]
pub(crate) struct CpuQuota(PathBuf);

impl CpuQuota {
    /// Creates a group whose processes together have this share of one processor.
    ///
    /// # Errors
    /// Without root, or without control groups for processors.
    pub(crate) fn new(share: f64) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").doing("read the mounts")?;
        let hierarchy = mounts.lines().find_map(hierarchy);
        let hierarchy = hierarchy.ok_or_else(|| Error::protocol("no control groups for CPU"))?;
        let name = format!("maglor-compare-{}", std::process::id());
        let group = hierarchy.place().join(name);
        fs::create_dir_all(&group).doing("create a control group, which needs root")?;
        let quota = Self(group);
        let most = (share * f64::from(PERIOD_US)).round();
        match hierarchy {
            Hierarchy::V1(_) => {
                quota.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
                quota.write("cpu.cfs_quota_us", &most.to_string())?;
            }
            Hierarchy::V2(_) => quota.write("cpu.max", &format!("{most} {PERIOD_US}"))?,
        }
        Ok(quota)
    }

    /// Moves a process with all its threads into the group.
    pub(crate) fn limit(&self, pid: u32) -> Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        fs::write(self.0.join(file), text).doing(format!("write {file} of a control group"))
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        let deadline = Instant::now() + BUSY;
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The root of the control groups for processors.
#[derive(Debug, PartialEq, Eq)]
enum Hierarchy {
    V1(PathBuf),
    V2(PathBuf),
}

impl Hierarchy {
    fn place(&self) -> &Path {
        let (Self::V1(place) | Self::V2(place)) = self;
        place
    }
}

/// Parses a line of `/proc/mounts`; `None` if it has no groups for processors.
fn hierarchy(mount: &str) -> Option<Hierarchy> {
    let fields: Vec<_> = mount.split(' ').collect();
    let (place, kind, options) = (fields.get(1)?, fields.get(2)?, fields.get(3)?);
    match *kind {
        "cgroup" if options.split(',').any(|one| one == "cpu") => Some(Hierarchy::V1(place.into())),
        "cgroup2" => {
            let path = Path::new(place);
            let passed_on = fs::read_to_string(path.join("cgroup.subtree_control")).ok()?;
            let has_cpu = passed_on.split_whitespace().any(|one| one == "cpu");
            has_cpu.then(|| Hierarchy::V2(path.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_for_processors_are_found_among_mounts() {
        let v1 = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu,cpuacct 0 0";
        let expected = Hierarchy::V1("/sys/fs/cgroup/cpu".into());
        assert_eq!(hierarchy(v1), Some(expected));
        for other in [
            "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0",
            "tmpfs /sys/fs/cgroup tmpfs rw 0 0",
            "none /no/such/folder cgroup2 rw 0 0",
            "broken",
        ] {
            assert_eq!(hierarchy(other), None, "{other}");
        }
    }

    #[test]
    fn version_2_needs_the_controller() {
        let folder = tempfile::tempdir().unwrap();
        let mount = format!("none {} cgroup2 rw 0 0", folder.path().display());
        let control = folder.path().join("cgroup.subtree_control");
        fs::write(&control, "memory pids\n").unwrap();
        assert_eq!(hierarchy(&mount), None);
        fs::write(&control, "cpu memory\n").unwrap();
        let expected = Hierarchy::V2(folder.path().into());
        assert_eq!(hierarchy(&mount), Some(expected));
    }
}
