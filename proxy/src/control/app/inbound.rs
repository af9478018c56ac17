//! Inbound listeners: settings from the control plane, which override those of the configuration file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use maglor_config::workload::{self, Workloads};
use maglor_config::{self as config, gateway};

use super::{App, ApplyError};
use crate::control::cache::Cache;

impl App {
    /// Applies the workload resources. Listeners that refer to an unknown workload use the settings of the file.
    ///
    /// # Errors
    /// If the resources cannot be applied; in this case nothing has changed.
    pub(crate) fn set_workloads(&mut self, known: Workloads) -> Result<(), ApplyError> {
        if known == self.workloads {
            return Ok(());
        }
        let stale = self.write_certificates(&known)?;
        let whole = workload::overlay(&self.file, &known).map_err(ApplyError::Inbound)?;
        self.put_in_force(whole, false)?;
        self.workloads = known;
        stale
            .iter()
            .for_each(|path| drop(std::fs::remove_file(path)));
        let names = self.workloads.keys().map(|name| &**name);
        tracing::info!(workloads = %names.collect::<Vec<_>>().join(", "), "inbound settings applied");
        self.count_workloads();
        Ok(())
    }

    /// Writes the certificates of the Gateway that this proxy serves to the cache directory. Returns the files in
    /// this directory that are no longer needed.
    fn write_certificates(&self, known: &Workloads) -> Result<Vec<PathBuf>, ApplyError> {
        let control_plane = self.config.control_plane.as_ref();
        let own = control_plane
            .and_then(|one| Some((known.get(one.gateway.as_ref()?)?, one.cache_dir.as_ref()?)));
        let Some((inbound, folder)) = own else {
            return Ok(Vec::new());
        };
        let cache = Cache::new(folder);
        let mut wanted = BTreeSet::new();
        for file in gateway::files(&inbound.gateway) {
            let name = file.name();
            if wanted.insert(name.clone()) && !folder.join(&name).exists() {
                cache
                    .write(&name, file.text.as_bytes())
                    .map_err(ApplyError::Certificate)?;
            }
        }
        let there = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let stale = there.filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(gateway::PREFIX) && !wanted.contains(&*name)
        });
        Ok(stale.map(|entry| entry.path()).collect())
    }

    /// Names the proxy's own pod, `NAMESPACE/POD`, in the metrics.
    pub(crate) fn describe_workload(&self, node: &str) {
        self.shared.metrics.describe_workload(node);
    }

    /// Returns the workloads that the current configuration refers to.
    pub(crate) fn wanted_workloads(&self) -> impl Iterator<Item = &Arc<str>> {
        let listeners = self.config.listeners.iter();
        let control_plane = self.config.control_plane.as_ref();
        let gateway = control_plane.and_then(|one| one.gateway.as_ref());
        listeners
            .filter_map(|one| one.workload.as_ref())
            .chain(gateway)
    }

    /// Applies the configuration of a file together with the known workload resources: entirely or not at all.
    pub(crate) fn apply(
        &mut self,
        loaded: config::Loaded,
        files_changed: bool,
    ) -> Result<(), ApplyError> {
        let file = Arc::clone(&loaded.yaml);
        let whole = match self.workloads.is_empty() {
            true => loaded,
            false => workload::overlay(&file, &self.workloads).map_err(ApplyError::Inbound)?,
        };
        self.put_in_force(whole, files_changed)?;
        self.file = file;
        self.count_workloads();
        Ok(())
    }

    /// Returns whether `loaded` is the configuration that was last applied from the file.
    pub(crate) fn is_of(&self, loaded: &config::Loaded) -> bool {
        self.file == loaded.yaml
    }

    fn count_workloads(&self) {
        let known = self
            .wanted_workloads()
            .filter(|name| self.workloads.contains_key(*name))
            .count();
        let known = i64::try_from(known).unwrap_or(i64::MAX);
        self.shared.metrics.xds.inbound.set(known);
    }

    /// Returns a workload that a listener refers to and that the control plane has not sent yet.
    pub(crate) fn unknown_workload(&self) -> Option<&str> {
        let mut wanted = self.wanted_workloads();
        wanted
            .find(|name| !self.workloads.contains_key(*name))
            .map(|name| &**name)
    }
}
