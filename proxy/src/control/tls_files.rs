//! Certificate, key and root files that filter chains and clusters name. When one changes, the configuration is
//! applied again. [`crate::mesh::identity`] watches the files of the proxy's identity.

use maglor_config::{Config, Origination, Termination};
use maglor_identity::Fingerprint;

use crate::tls;

/// Fingerprints of the files when they were last read.
#[derive(Debug)]
pub(crate) struct Files {
    settings: Vec<Settings>,
    seen: Vec<Fingerprint>,
}

#[derive(Debug)]
enum Settings {
    Downstream(maglor_config::DownstreamTls),
    Upstream(maglor_config::UpstreamTls),
}

impl Files {
    /// Records the current state of a configuration's files.
    pub(crate) fn of(config: &Config) -> Self {
        let chains = config
            .listeners
            .iter()
            .flat_map(|listener| &listener.filter_chains);
        let downstream = chains.filter_map(|chain| match chain.tls.as_ref()? {
            Termination::Certificates(tls) => Some(Settings::Downstream(tls.clone())),
            Termination::Mesh(_) => None,
        });
        let clusters = config.clusters.iter();
        let upstream = clusters.filter_map(|cluster| match cluster.tls.as_ref()? {
            Origination::Names(tls) => Some(Settings::Upstream(tls.clone())),
            Origination::Mesh(_) => None,
        });
        let settings: Vec<_> = downstream.chain(upstream).collect();
        let seen = look(&settings);
        Self { settings, seen }
    }

    /// Returns whether a file has changed since the last call.
    pub(crate) fn changed(&mut self) -> bool {
        let now = look(&self.settings);
        let changed = now != self.seen;
        self.seen = now;
        changed
    }
}

fn look(settings: &[Settings]) -> Vec<Fingerprint> {
    let each = settings.iter().map(|settings| match settings {
        Settings::Downstream(tls) => tls::downstream_files(tls),
        Settings::Upstream(tls) => tls::upstream_files(tls),
    });
    each.collect()
}
