//! A directory for a proxy's configuration, log and temporary files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Doing, Result};

const PREFIX: &str = "maglor-compare-";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A new directory that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn new(name: &str) -> Result<Self> {
        // Relaxed: the counter only has to return different numbers.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = format!("{PREFIX}{}-{count}-{name}", std::process::id());
        let path = std::env::temp_dir().join(directory);
        fs::create_dir_all(&path).doing("make a directory for a proxy")?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn log_file(&self) -> Result<fs::File> {
        fs::File::create(self.path.join("log")).doing("make a log file")
    }

    /// Lets a command run in this directory, with its output in `log`.
    pub(crate) fn run_in(&self, command: &mut Command, log: &fs::File) -> Result<()> {
        let shared = || log.try_clone().doing("share a log file");
        command
            .stdin(Stdio::null())
            .stdout(shared()?)
            .stderr(shared()?)
            .current_dir(&self.path);
        Ok(())
    }

    /// Returns the end of the proxy's output.
    pub(crate) fn log_end(&self) -> String {
        let text = fs::read_to_string(self.path.join("log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Removes the directories of interrupted comparisons: those whose process no longer exists.
pub(super) fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
