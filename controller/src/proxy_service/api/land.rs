//! Lists all `ProxyService`s, and all Services that those without a `targetRef` may apply to.

use std::collections::BTreeSet;

use kube::api::ListParams;
use serde_json::Value;

use super::{Kind, Server, is, value};
use crate::index::facts::Key;
use crate::proxy_service::manifests::text;
use crate::proxy_service::observed::Claim;
use crate::proxy_service::scope::{Land, holding, key, opts_out};

impl Server {
    /// Observes all of them at once. Without a `ProxyService` for many Services it sends few requests.
    pub(in crate::proxy_service) async fn land(&self) -> Result<Land, kube::Error> {
        let claims = self.everywhere(Kind::ProxyService).await?;
        let mut land = Land {
            claims: by_age(claims),
            root: self.root.clone(),
            ..Land::default()
        };
        let namespaces: BTreeSet<String> = land
            .wide()
            .map(|claim| claim.key.namespace.clone())
            .collect();
        if namespaces.contains(&self.root) {
            land.services = self.everywhere(Kind::Service).await?;
            land.policies = self.everywhere(Kind::TrafficPolicy).await?;
            let all = self.everywhere(Kind::Namespace).await?;
            let closed = all.iter().filter(|one| opts_out(one));
            land.closed = closed.map(|one| key(one).name).collect();
            return Ok(land);
        }
        for namespace in &namespaces {
            land.services
                .extend(self.list(Kind::Service, namespace, None).await?);
            land.policies
                .extend(self.list(Kind::TrafficPolicy, namespace, None).await?);
        }
        Ok(land)
    }

    /// Returns the `ProxyService`s that apply to a Service, in order of precedence.
    pub(super) async fn claims(
        &self,
        of: &Key,
        service: Option<&Value>,
    ) -> Result<Vec<Claim>, kube::Error> {
        let mut found = self.list(Kind::ProxyService, &of.namespace, None).await?;
        if of.namespace != self.root {
            let root = self.list(Kind::ProxyService, &self.root, None).await?;
            let wide = |one: &Value| one["spec"]["targetRef"].is_null();
            found.extend(root.into_iter().filter(wide));
        }
        let claims = by_age(found);
        let Some(service) = service else {
            let own = |claim: &Claim| !claim.is_wide && claim.service == of.name;
            return Ok(claims.into_iter().filter(own).collect());
        };
        let mut closed = false;
        if claims
            .iter()
            .any(|claim| claim.is_wide && claim.key.namespace == self.root)
        {
            let namespace = self.all(Kind::Namespace).get_opt(&of.namespace).await?;
            closed = namespace.is_some_and(|one| opts_out(&value(Kind::Namespace, &one)));
        }
        Ok(holding(claims, service, &self.root, closed))
    }

    /// Lists from the API server's cache, which is sufficient for periodic checks.
    async fn everywhere(&self, kind: Kind) -> Result<Vec<Value>, kube::Error> {
        match self
            .all(kind)
            .list(&ListParams::default().match_any())
            .await
        {
            Ok(list) => Ok(list.items.iter().map(|one| value(kind, one)).collect()),
            // The kind is not defined.
            Err(error) if is(&error, 404) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// Sorts by age, then by name.
pub(super) fn by_age(mut found: Vec<Value>) -> Vec<Claim> {
    let age = |claim: &Value| {
        let meta = &claim["metadata"];
        let text = |name: &str| text(&meta[name]).to_owned();
        (text("creationTimestamp"), text("name"))
    };
    found.sort_by_key(age);
    found.iter().map(Claim::read).collect()
}
