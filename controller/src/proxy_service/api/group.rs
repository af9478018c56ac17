//! Observes the proxies of a Service, and the objects of a group that shares them.

use futures_util::try_join;
use serde_json::Value;

use super::Server;
use super::land::by_age;
use crate::index::facts::Key;
use crate::index::facts::service::PROXY_GROUP;
use crate::proxy_service::fields::text;
use crate::proxy_service::kind::Kind;
use crate::proxy_service::observed::Claim;
use crate::proxy_service::{Front, Group, LABEL};

impl Server {
    /// Returns the owner of the existing proxies or, if there are none, of the wanted ones. `claims` are those that
    /// apply to the Service.
    pub(super) async fn front(
        &self,
        of: &Key,
        claims: &[Claim],
        service: Option<&Value>,
        target: Option<&Value>,
    ) -> Result<Front, kube::Error> {
        let ours = |target: &&Value| target["metadata"]["labels"][LABEL] == *of.name;
        if let Some(found) = Front::found(service, target.filter(ours)) {
            return Ok(found);
        }
        if let Some(left) = self.left_behind(of, service).await? {
            return Ok(left);
        }
        let claim = claims.iter().find(|claim| !claim.deleting);
        let spec = claim.and_then(|claim| claim.spec.as_ref().ok());
        Ok(spec.map_or_else(
            || Front::Service(of.name.clone()),
            |spec| Front::of(&of.name, spec),
        ))
    }

    async fn left_behind(
        &self,
        of: &Key,
        service: Option<&Value>,
    ) -> Result<Option<Front>, kube::Error> {
        let (Some(service), of_groups) = (service, Some(PROXY_GROUP)) else {
            return Ok(None);
        };
        let list = |kind| self.list(kind, &of.namespace, of_groups);
        // The service account, if there is one, is created first and deleted last.
        let (mut made, accounts, targets) = try_join!(
            list(Kind::Deployment),
            list(Kind::ServiceAccount),
            list(Kind::Service),
        )?;
        made.extend(accounts);
        if made.is_empty() {
            return Ok(None);
        }
        Ok(Front::left_behind(service, &made, &targets))
    }

    /// Observes the group if proxies are shared. `pods` are the proxies. This does not query the ports on which they
    /// listen.
    pub(super) async fn group(
        &self,
        of: &Key,
        front: &Front,
        pods: &[Value],
    ) -> Result<Option<Group>, kube::Error> {
        let (Front::Group(name), namespace) = (front, of.namespace.as_str()) else {
            return Ok(None);
        };
        let claims = by_age(self.list(Kind::ProxyService, namespace, None).await?);
        let label = format!("{PROXY_GROUP}={name}");
        let targets = self.list(Kind::Service, namespace, Some(&label)).await?;
        let ready = pods.iter().filter(|pod| serves(pod));
        let ready = ready.map(|pod| format!("{namespace}/{}", text(&pod["metadata"]["name"])));
        let ready = ready.collect();
        Ok(Some(Group::of(&of.name, name, claims, targets, ready)))
    }
}

/// Returns whether a pod receives requests.
fn serves(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    let ends = pod["metadata"]["deletionTimestamp"].is_string();
    !ends && conditions.into_iter().flatten().any(ready)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_ends_gets_nothing_new() {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        assert!(serves(&json!({"metadata": {}, "status": ready})));
        let ending = json!({"deletionTimestamp": "now"});
        assert!(!serves(&json!({"metadata": ending, "status": ready})));
        assert!(!serves(&json!({"metadata": {}, "status": {}})));
    }
}
