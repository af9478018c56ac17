//! The access log's file: opened with a configuration, written and reopened on the control thread.

use std::sync::Arc;

use maglor_config as config;

use super::{App, ApplyError};
use crate::telemetry::access_log::AccessLog;

impl App {
    /// Opens the access log that a configuration wants; one with the same settings is kept.
    pub(super) fn access_log(
        &self,
        wanted: &config::Config,
    ) -> Result<Option<Arc<AccessLog>>, ApplyError> {
        let Some(settings) = &wanted.access_log else {
            return Ok(None);
        };
        match self.shared.observers.access_log() {
            Some(log) if log.settings() == settings => Ok(Some(log)),
            _ => AccessLog::open(settings)
                .map(|log| Some(Arc::new(log)))
                .map_err(|source| ApplyError::AccessLog {
                    path: settings.path.clone(),
                    source,
                }),
        }
    }

    /// Writes the buffered lines of the access log.
    pub(crate) fn flush_access_log(&self) {
        let Some(log) = self.shared.observers.access_log() else {
            return;
        };
        let (dropped, news) = log.flush();
        let control = &self.shared.metrics.control;
        control.access_log_dropped.add_shared(dropped);
        if let Some(error) = news {
            tracing::warn!(%error, "cannot write the access log");
        }
    }

    /// Reopens the access log's file, after log rotation.
    pub(crate) fn reopen_access_log(&self) {
        let Some(log) = self.shared.observers.access_log() else {
            return;
        };
        if let Err(error) = log.reopen() {
            tracing::warn!(%error, "cannot reopen the access log");
        }
    }
}
