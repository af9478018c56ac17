//! Control groups: a folder for each node in every hierarchy, so that no kubelet removes the pods of another one.
//! Control groups are the only part of a machine that is not removed with its processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::error::{At as _, ClusterError};

/// The time for which groups may be busy after their processes were killed.
const BUSY: Duration = Duration::from_secs(10);

/// Returns the name of a cluster's group, below the root of each hierarchy.
pub(crate) fn group(cluster: &str) -> String {
    format!("maglor-cluster-{cluster}")
}

/// Creates the group of a node in every hierarchy.
pub(crate) fn make(cluster: &str, node: &str) -> Result<(), ClusterError> {
    for hierarchy in hierarchies()? {
        let parent = hierarchy.join(group(cluster));
        for folder in [parent.clone(), parent.join(node)] {
            fs::create_dir_all(&folder).at(&folder)?;
            // A cpuset of version 1 is empty until it is filled, and accepts no process before.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let (from, to) = (hierarchy.join(file), folder.join(file));
                if from.exists() {
                    let all = fs::read_to_string(&from).at(&from)?;
                    fs::write(&to, all).at(&to)?;
                }
            }
        }
    }
    Ok(())
}

/// Removes the groups of a cluster whose processes have been killed.
pub(crate) fn remove(cluster: &str) -> Result<(), ClusterError> {
    let deadline = Instant::now() + BUSY;
    for hierarchy in hierarchies()? {
        let folder = hierarchy.join(group(cluster));
        while folder.exists() {
            match remove_tree(&folder) {
                Ok(()) => {}
                Err(error) if Instant::now() > deadline => return Err(error).at(&folder),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
    Ok(())
}

/// Removes the folders of a group; its files are removed with them.
fn remove_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

/// Returns the mount points of the hierarchies of both cgroup versions.
fn hierarchies() -> Result<Vec<PathBuf>, ClusterError> {
    let path = Path::new("/proc/self/mounts");
    let mounts = fs::read_to_string(path).at(path)?;
    Ok(mounts.lines().filter_map(hierarchy).collect())
}

fn hierarchy(mount: &str) -> Option<PathBuf> {
    let mut fields = mount.split(' ').skip(1);
    let (place, kind) = (fields.next()?, fields.next()?);
    matches!(kind, "cgroup" | "cgroup2").then(|| place.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found_among_mounts() {
        let mounts = [
            (
                "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0",
                Some("/sys/fs/cgroup/cpu"),
            ),
            ("none /sys/fs/cgroup cgroup2 rw 0 0", Some("/sys/fs/cgroup")),
            ("tmpfs /sys/fs/cgroup tmpfs rw 0 0", None),
            ("broken", None),
        ];
        for (line, place) in mounts {
            assert_eq!(hierarchy(line), place.map(PathBuf::from), "{line}");
        }
    }
}
