//! Lists all `ProxyService`s, and all Services to which those without a `targetRef` may apply.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use futures_util::try_join;
use serde_json::Value;

use super::Server;
use crate::index::facts::Key;
use crate::proxy_service::fields::text;
use crate::proxy_service::kind::Kind;
use crate::proxy_service::observed::Claim;
use crate::proxy_service::scope::{Land, holding, key, opts_out};
use crate::proxy_service::watched::Watched;

impl Server {
    /// Returns the `ProxyService`s that may apply to Services of a namespace, by age.
    pub(super) async fn all_claims(&self, namespace: &str) -> Result<Vec<Claim>, kube::Error> {
        let list = |namespace| self.list(Kind::ProxyService, namespace, None);
        if namespace == self.root {
            return Ok(by_age(list(namespace).await?));
        }
        let (mut found, root) = try_join!(list(namespace), list(&self.root))?;
        let wide = |one: &Value| one["spec"]["targetRef"].is_null();
        found.extend(root.into_iter().filter(wide));
        Ok(by_age(found))
    }

    /// Returns those of the `ProxyService`s of [`Server::all_claims`] that apply to a Service, in order of precedence.
    pub(super) async fn claims(
        &self,
        of: &Key,
        service: Option<&Value>,
        claims: Vec<Claim>,
    ) -> Result<Vec<Claim>, kube::Error> {
        let Some(service) = service else {
            let own = |claim: &Claim| !claim.is_wide && claim.service == of.name;
            return self.current(claims.into_iter().filter(own).collect()).await;
        };
        let mut closed = false;
        if claims
            .iter()
            .any(|claim| claim.is_wide && claim.key.namespace == self.root)
        {
            let namespace = self.get(Kind::Namespace, "", &of.namespace).await?;
            closed = namespace.is_some_and(|one| opts_out(&one));
        }
        self.current(holding(claims, service, &self.root, closed))
            .await
    }

    /// Reads these `ProxyService`s again, if they are from a list of a watch and single objects are not.
    async fn current(&self, claims: Vec<Claim>) -> Result<Vec<Claim>, kube::Error> {
        if self.objects.is_some() || self.lists.is_none() {
            return Ok(claims);
        }
        let read = claims
            .iter()
            .map(|claim| self.get(Kind::ProxyService, &claim.key.namespace, &claim.key.name));
        let read = try_join_all(read).await?;
        Ok(read.iter().flatten().map(Claim::read).collect())
    }
}

/// Observes all `ProxyService`s at once, and the Services to which those without a `targetRef` may apply.
pub(in crate::proxy_service) fn land(watched: &Watched, root: &str) -> Land {
    let mut land = Land {
        claims: by_age(watched.list(Kind::ProxyService, None, None)),
        root: root.to_owned(),
        ..Land::default()
    };
    let namespaces: BTreeSet<String> = land
        .wide()
        .map(|claim| claim.key.namespace.clone())
        .collect();
    if namespaces.contains(root) {
        land.services = watched.list(Kind::Service, None, None);
        land.policies = watched.list(Kind::TrafficPolicy, None, None);
        let all = watched.list(Kind::Namespace, None, None);
        let closed = all.iter().filter(|one| opts_out(one));
        land.closed = closed.map(|one| key(one).name).collect();
        return land;
    }
    for namespace in &namespaces {
        let list = |kind| watched.list(kind, Some(namespace), None);
        land.services.extend(list(Kind::Service));
        land.policies.extend(list(Kind::TrafficPolicy));
    }
    land
}

/// Sorts claims by age, then by name.
pub(super) fn by_age(mut found: Vec<Value>) -> Vec<Claim> {
    let age = |claim: &Value| {
        let meta = &claim["metadata"];
        let text = |name: &str| text(&meta[name]).to_owned();
        (text("creationTimestamp"), text("name"))
    };
    found.sort_by_key(age);
    found.iter().map(Claim::read).collect()
}
