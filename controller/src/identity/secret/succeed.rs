//! The state in force while the Secret contains a new authority that is not used yet, and the storage of this state.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::{KeepError, Keeper, with};
use crate::api_server;
use crate::conditional_writes::Manager;
use crate::identity::rotation::{Circumstances, Phase, Spread, Stored};
use crate::identity::succession::Succession;
use crate::status_writer::FIELD_MANAGER;

/// The suffix of the name of the Secret with the state in force.
const IN_FORCE: &str = "-in-force";
/// The key of the state in this Secret.
const SUCCESSION: &str = "succession.json";

impl Keeper {
    pub(super) fn kept_name(&self) -> String {
        format!("{}{IN_FORCE}", self.settings.name)
    }

    /// Handles the stored state in force, which this or another replica has written.
    pub(super) fn take_kept(&mut self, secret: Option<Secret>) {
        let text = |secret: &Secret| secret.data.as_ref()?.get(SUCCESSION).cloned();
        let text = secret.as_ref().and_then(text);
        self.kept = secret;
        let Some(text) = text else { return };
        match Succession::from_json(&text.0, &self.settings.trust_domain) {
            Ok(succession) if self.succession.as_ref() != Some(&succession) => {
                self.put_in_force(succession);
            }
            Ok(_) => {}
            Err(error) => self.refuse(&error),
        }
    }

    fn put_in_force(&mut self, succession: Succession) {
        match succession.ca(&self.settings.trust_domain) {
            Ok(ca) => {
                let roots = ca.bundle.certificates().len();
                let phase = succession.phase();
                tracing::info!(roots, phase = phase.word(), "authority loaded");
                self.ca.send_replace(Some(Arc::new(ca.into())));
                self.succession = Some(succession);
                self.show(Vec::new());
            }
            Err(error) => self.refuse(&error),
        }
    }

    /// Follows the source, and takes the next step of its replacement. An authority that members do not trust yet is
    /// stored by the leader before it is used; the other replicas follow the stored state.
    pub(super) async fn succeed(&mut self) -> Result<(), KeepError> {
        let domain = self.settings.trust_domain.clone();
        let now = Timestamp::now();
        let followed = match (&self.succession, &self.source) {
            (None, None) => return Ok(()),
            (None, Some(source)) => Succession::begin(source.clone(), &domain).map(Some),
            (Some(succession), Some(source)) => succession.follow(source, &domain, now),
            (Some(_), None) => Ok(None),
        };
        let next = match followed {
            Ok(next) => {
                if self.source.is_some() && self.refused.take().is_some() {
                    self.show(Vec::new());
                }
                next
            }
            Err(error) => {
                self.refuse(&error);
                None
            }
        };
        let next = match (next, &self.succession) {
            (Some(next), _) => next,
            (None, Some(succession)) => {
                let Some(next) = self.step(succession.clone(), now).await? else {
                    return Ok(());
                };
                next
            }
            (None, None) => return Ok(()),
        };
        let staged = next.phase() != Phase::Steady || self.kept.is_some();
        if staged {
            if !self.writes() {
                return Ok(());
            }
            if !self.write_down(&next).await? {
                return Ok(());
            }
        }
        self.put_in_force(next);
        Ok(())
    }

    async fn step(
        &self,
        succession: Succession,
        now: Timestamp,
    ) -> Result<Option<Succession>, KeepError> {
        if succession.phase() == Phase::Steady || !self.writes() {
            return Ok(None);
        }
        let spread = match succession.phase() {
            Phase::Announcing => self.replicas.spread(&self.ca).await?,
            Phase::Retiring | Phase::Steady => Spread::Everywhere,
        };
        if let Spread::Missing(missing) = &spread {
            self.show(missing.clone());
        }
        let circumstances = Circumstances {
            now,
            spread: &spread,
            ttl: self.settings.ttl,
            deadline: self.settings.deadline,
        };
        Ok(succession.step(&self.settings.trust_domain, &circumstances)?)
    }

    /// Stores the state; returns whether it was written. If another replica was faster, the watch delivers what it
    /// has written.
    async fn write_down(&mut self, succession: &Succession) -> Result<bool, KeepError> {
        let name = self.kept_name();
        let text = ByteString(succession.to_json().into_bytes());
        let mut secret = with(
            self.kept.clone().unwrap_or_default(),
            Stored::default(),
            &name,
        );
        secret.data = Some(BTreeMap::from([(SUCCESSION.to_owned(), text)]));
        let by = Manager(FIELD_MANAGER);
        let written = match &self.kept {
            Some(_) => by.replace(&self.api, &name, &secret).await,
            None => {
                secret.type_ = Some("Opaque".to_owned());
                by.create(&self.api, &secret).await
            }
        };
        match written {
            Ok(secret) => {
                self.kept = Some(secret);
                tracing::info!(
                    secret = name,
                    phase = succession.phase().word(),
                    "state of the CA rotation stored"
                );
                Ok(true)
            }
            Err(error) if api_server::is(&error, 409) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
