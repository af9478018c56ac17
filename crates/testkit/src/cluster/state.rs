//! The state of a cluster on disk: a directory that is protected by a lock, and a file with the processes of the
//! cluster.
//!
//! The lock is released when its holder ends, so a folder without a holder was left by a crash. The next process
//! removes it; the processes of the cluster have ended with the holder.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::cluster::cgroup;
use crate::cluster::error::{At as _, ClusterError};
use crate::cluster::options::check_name;
use crate::cluster::programs;
use crate::cluster::wait::until;

/// The timeout for killed processes to end.
const DYING: Duration = Duration::from_secs(30);

/// The state of a running cluster, for other processes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct State {
    /// The path of the administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The path of `kubectl` in the version of the cluster.
    pub kubectl: PathBuf,
    /// The machines: the control plane first, then the nodes.
    pub machines: Vec<MachineState>,
    /// The one-way delay between nodes in microseconds; 0 = none.
    pub delay_micros: u64,
}

impl State {
    /// Returns the machines that run containers.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &MachineState> {
        self.machines.iter().skip(1)
    }
}

/// A machine of a [`State`].
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct MachineState {
    /// The name of the machine.
    pub name: String,
    /// The address of the machine.
    pub address: String,
    /// The process id of the machine's first process, whose namespaces can be entered.
    pub init: u32,
}

/// The folder of a cluster, with a lock on it.
#[derive(Debug)]
pub(crate) struct Folder {
    name: String,
    path: PathBuf,
    lock: File,
}

impl Folder {
    /// Locks the folder for a new cluster, and removes what an earlier one has left.
    ///
    /// # Errors
    ///
    /// Another process holds the folder.
    pub(crate) fn take(name: &str) -> Result<Self, ClusterError> {
        let path = place(name)?;
        fs::create_dir_all(&path).at(&path)?;
        let lock_path = lock_path(name)?;
        // Not truncated: its contents are the holder's until the lock is ours.
        let mut options = File::options();
        let lock = options.write(true).create(true).truncate(false);
        let mut lock = lock.open(&lock_path).at(&lock_path)?;
        if lock.try_lock().is_err() {
            return Err(ClusterError::Busy { name: name.into() });
        }
        lock.set_len(0).at(&lock_path)?;
        write!(lock, "{}", std::process::id()).at(&lock_path)?;
        let folder = Self {
            name: name.to_owned(),
            path,
            lock,
        };
        folder.empty()?;
        fs::create_dir_all(&folder.path).at(&folder.path)?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the state for other processes.
    pub(crate) fn publish(&self, state: &State) -> Result<(), ClusterError> {
        let path = self.path.join("state.json");
        let partial = self.path.join("state.json.partial");
        let text = serde_json::to_string_pretty(state).unwrap_or_default();
        fs::write(&partial, text).at(&partial)?;
        fs::rename(&partial, &path).at(&path)
    }

    /// Removes everything that is left of a cluster whose machines have ended.
    fn empty(&self) -> Result<(), ClusterError> {
        cgroup::remove(&self.name)?;
        // Processes that are being killed may still write.
        let what = format!("{} can be removed", self.path.display());
        until(
            DYING,
            &what,
            "check which process writes to the folder",
            || {
                let removed = fs::remove_dir_all(&self.path);
                Ok((removed.is_ok() || !self.path.exists()).then_some(()))
            },
        )
    }

    /// Removes the folder, including the lock.
    pub(crate) fn remove(&self) -> Result<(), ClusterError> {
        self.empty()?;
        let path = lock_path(&self.name)?;
        fs::remove_file(&path).at(&path)?;
        let _ = self.lock.unlock();
        Ok(())
    }
}

/// Returns the state of a running cluster.
///
/// # Errors
///
/// There is no cluster with this name, or it is still starting.
pub fn read(name: &str) -> Result<State, ClusterError> {
    let not_up = || ClusterError::NotUp { name: name.into() };
    if !is_held(name)? {
        return Err(not_up());
    }
    let path = place(name)?.join("state.json");
    let text = fs::read_to_string(path).map_err(|_| not_up())?;
    serde_json::from_str(&text).map_err(|_| not_up())
}

/// Returns whether a process holds the cluster with this name.
fn is_held(name: &str) -> Result<bool, ClusterError> {
    let path = lock_path(name)?;
    let lock = File::open(&path);
    Ok(lock.is_ok_and(|lock| lock.try_lock_shared().is_err()))
}

/// Stops the process that holds the cluster, and removes what is left of the cluster; returns whether there was
/// anything.
///
/// # Errors
///
/// The holder does not end, or something cannot be removed.
pub(crate) fn end(name: &str) -> Result<bool, ClusterError> {
    if is_held(name)? {
        let path = lock_path(name)?;
        let text = fs::read_to_string(&path).at(&path)?;
        if let Some(holder) = text.parse().ok().and_then(Pid::from_raw) {
            // Its end is sufficient: everything else ends with it.
            let _ = kill_process(holder, Signal::TERM);
        }
        let what = format!("process {text} ends");
        until(DYING, &what, "kill the process", || {
            Ok((!is_held(name)?).then_some(()))
        })?;
    } else if !place(name)?.exists() {
        return Ok(false);
    }
    Folder::take(name)?.remove()?;
    Ok(true)
}

/// Returns the folder of the cluster with this name.
///
/// # Errors
///
/// The name is invalid: a path outside the cache must never be treated as a cluster's folder.
pub(crate) fn place(name: &str) -> Result<PathBuf, ClusterError> {
    check_name(name)?;
    Ok(programs::cache()?.join("cluster").join(name))
}

fn lock_path(name: &str) -> Result<PathBuf, ClusterError> {
    Ok(place(name)?.with_extension("lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_never_taken_for_a_folder() {
        for name in ["", ".", "..", "../..", "/", "a/b", "A", "a.lock"] {
            for refused in [read(name).err(), end(name).err(), Folder::take(name).err()] {
                let field = matches!(refused, Some(ClusterError::Invalid { field: "name", .. }));
                assert!(field, "{name}: {refused:?}");
            }
        }
    }
}
