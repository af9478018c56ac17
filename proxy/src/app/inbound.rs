//! What the control plane says of inbound listeners, over what the file says of them.

use maglor_config as config;
use maglor_config::workload::{self, Workloads};

use super::{App, ApplyError};

impl App {
    /// Puts in force what is known of workloads. Listeners that ask for one of which nothing is known do
    /// what the file says.
    ///
    /// # Errors
    /// When it cannot be put in force; nothing has changed then.
    pub(crate) fn set_workloads(&mut self, known: Workloads) -> Result<(), ApplyError> {
        if known == self.workloads {
            return Ok(());
        }
        let whole = workload::overlay(&self.file, &known).map_err(ApplyError::Inbound)?;
        self.put_in_force(whole, false)?;
        self.workloads = known;
        let names = self.workloads.keys().map(|name| &**name);
        tracing::info!(workloads = %names.collect::<Vec<_>>().join(", "), "inbound settings in force");
        self.count_workloads();
        Ok(())
    }

    /// Puts a file's configuration in force, with what is known of workloads: as a whole, or not at all.
    pub(crate) fn apply(
        &mut self,
        loaded: config::Loaded,
        files_changed: bool,
    ) -> Result<(), ApplyError> {
        let file = loaded.yaml.clone();
        let whole = match self.workloads.is_empty() {
            true => loaded,
            false => workload::overlay(&file, &self.workloads).map_err(ApplyError::Inbound)?,
        };
        self.put_in_force(whole, files_changed)?;
        self.file = file;
        self.count_workloads();
        Ok(())
    }

    /// Whether it is the file that is in force.
    pub(crate) fn is_of(&self, loaded: &config::Loaded) -> bool {
        self.file == loaded.yaml
    }

    fn count_workloads(&self) {
        let wanted = self
            .config
            .listeners
            .iter()
            .filter_map(|one| one.workload.as_ref());
        let known = wanted
            .filter(|name| self.workloads.contains_key(*name))
            .count();
        let known = i64::try_from(known).unwrap_or(i64::MAX);
        self.shared.metrics.xds.inbound.set(known);
    }

    /// A workload that a listener asks for and of which nothing is known.
    pub(crate) fn unknown_workload(&self) -> Option<&str> {
        let mut wanted = self
            .config
            .listeners
            .iter()
            .filter_map(|one| one.workload.as_deref());
        wanted.find(|name| !self.workloads.contains_key(*name))
    }
}
