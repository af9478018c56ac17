//! The identity service on Kubernetes: tokens of service accounts, an authority in a Secret or a signer, and the trusted
//! roots for pods.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio::sync::watch;

use super::authenticate::Authenticator;
use super::authority::Watched;
use super::certify::{CertifyError, Rejections};
use super::external::ExternalSigner;
use super::replicas;
use super::review::Reviews;
use super::roots;
use super::secret::{self, Keeper};
use super::signer::SignerName;
use super::start::{Cluster, Published, Settings, Spawn};
use super::trust_bundles;
use crate::events::Events;
use crate::lease::Term;
use crate::resource_server::Table;

/// The API server access of one replica.
pub struct Replica {
    /// The client for reads.
    pub client: Client,
    /// The client for leader-only writes.
    pub writer: Client,
    /// The unique name of the replica.
    pub name: String,
    /// The leadership of this replica.
    pub term: watch::Receiver<Term>,
}

impl Cluster for Replica {
    fn authenticator(&self) -> Box<dyn Authenticator> {
        Box::new(Reviews::new(self.client.clone()))
    }

    fn rejections(&self) -> Box<dyn Rejections> {
        let client = self.client.clone();
        Box::new(Events::new(client, "maglor.dev/identity", &self.name))
    }

    fn keep_secret(
        &self,
        settings: &Settings,
        name: &str,
        (in_force, progress): Published,
        spawn: Spawn<'_>,
    ) {
        let secret = secret::Settings {
            namespace: settings.namespace.clone(),
            name: name.to_owned(),
            trust_domain: settings.trust_domain.clone(),
            ttl: settings.ttl,
            deadline: settings.deadline,
        };
        let (client, term) = (self.writer.clone(), self.term.clone());
        let keeper = Keeper::new(client, secret, term, in_force, progress);
        spawn("authority", Box::pin(keeper.keep()));
    }

    fn follow_signer(
        &self,
        settings: &Settings,
        (name, roots): (&SignerName, &str),
        (in_force, progress): Published,
        spawn: Spawn<'_>,
    ) {
        // Not the fenced client, because every replica creates requests, not only the leader.
        let client = self.client.clone();
        let domain = &settings.trust_domain;
        let (signer, cleaned) = ExternalSigner::new(client.clone(), name, domain, settings.ttl);
        spawn("certificate signing requests", Box::pin(cleaned));
        let place = roots::Place {
            namespace: settings.namespace.clone(),
            name: roots.to_owned(),
        };
        let followed = roots::follow(client, place, Arc::new(signer), in_force, progress);
        spawn("roots of the signer", Box::pin(followed));
    }

    fn share(
        &self,
        settings: &Settings,
        ca: &Watched,
        table: &Table,
        spawn: Spawn<'_>,
    ) -> watch::Receiver<bool> {
        let (sender, registered) = watch::channel(false);
        let (namespace, name) = (settings.namespace.clone(), self.name.clone());
        let client = self.client.clone();
        let reported = replicas::report(client, namespace, name, ca.clone(), table.clone(), sender);
        spawn("report of trust", Box::pin(reported));
        let (client, term) = (self.writer.clone(), self.term.clone());
        let kept = trust_bundles::keep(client, ca.clone(), term);
        spawn("trust bundles", Box::pin(kept));
        registered
    }
}

impl Rejections for Events {
    fn report(&self, namespace: &str, pod: &str, error: &CertifyError) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(pod.to_owned()),
            ..ObjectReference::default()
        };
        self.warn(about, "CertificateRefused", "Certify", &error.to_string());
    }
}
