//! Checks that the files named by a configuration can be used on this machine.

use std::fmt::Display;

use maglor_config::{Config, Identity, Origination, Termination};

use super::BuildError;
use crate::mesh::identity::{Own, Stored};
use crate::tls::{self, Roots};

/// Returns errors that would prevent a start with this configuration: certificates, keys and roots that cannot be
/// read or do not match.
#[must_use]
pub fn unusable_files(config: &Config) -> Vec<BuildError> {
    let mut roots = Roots::new();
    let mut found = Vec::new();
    let mut note = |place: &dyn Display, source: tls::Error| {
        found.push(BuildError::Tls {
            place: place.to_string(),
            source: Box::new(source),
        });
    };
    for listener in &config.listeners {
        for chain in &listener.filter_chains {
            if let Some(Termination::Certificates(tls)) = &chain.tls
                && let Err(error) = tls::server_config(tls, &mut roots)
            {
                note(&super::place(&listener.name, chain), error);
            }
        }
    }
    for cluster in &config.clusters {
        if let Some(Origination::Names(tls)) = &cluster.tls
            && let Err(error) = tls::client_config(tls, &[], &mut roots)
        {
            note(&format_args!("cluster `{}`", cluster.name), error);
        }
    }
    if let Some(identity @ Identity::Files(_)) = &config.identity
        && let Err(error) = Own::default().prepare(Some(identity), Stored::default)
    {
        found.push(BuildError::Identity {
            place: "identity".to_owned(),
            source: Box::new(error),
        });
    }
    found
}
