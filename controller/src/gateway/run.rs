//! The operator: applies the objects of a Gateway whenever the Gateway, its class or one of the objects changes. Only
//! the leader writes.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::FIELD_MANAGER;
use super::left_over::{self, Successors};
use super::manifests::{PART_OF, manifests};
use crate::api_server;
use crate::events::Events;
use crate::index::facts::Kind;
use crate::index::facts::gateway::{GATEWAY_CONTROLLER, GATEWAY_NAME};
use crate::lease::Term;
use crate::proxy_pod::Settings;
use crate::proxy_service::manifests::is_as_applied;
use crate::scope::{Certificates, Scope};
use crate::source::kubernetes::api_resource;
use crate::writes::{self, Manager, Seen};

/// Delay in which changes are collected into one check.
const SETTLE: Duration = Duration::from_millis(100);
/// Interval of full checks, independent of watches.
const ROUND: Duration = Duration::from_secs(30);
/// Pause after a failed watch.
const REST: Duration = Duration::from_secs(5);

/// The class that the operator creates.
const CLASS: &str = "maglor";
const GATEWAY: &str = "gateway.networking.k8s.io/v1";
/// The field manager of the initial number of proxies of a new Deployment.
const REPLICAS_MANAGER: &str = "maglor-gateway-replicas";

/// Options for the proxies of all Gateways.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Their image, and the address of this control plane.
    pub settings: Settings,
    /// The type of the Service if the Gateway sets none.
    pub service_type: String,
    /// Initial number of proxies of a Gateway.
    pub replicas: u32,
    /// The namespaces whose Gateways are served.
    pub scope: Scope,
    /// Certificates that may be read.
    pub certificates: Certificates,
}

/// Returns the kinds of a Gateway's objects.
fn made() -> [ApiResource; 4] {
    [
        ApiResource::erase::<ServiceAccount>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<PodDisruptionBudget>(&()),
    ]
}

/// Runs the operator forever.
pub async fn run(
    client: Client,
    options: Options,
    mut term: watch::Receiver<Term>,
    events: Events,
) {
    let changed = Notify::new();
    let all = |resource: &ApiResource| Api::<DynamicObject>::all_with(client.clone(), resource);
    let ours = || api_server::watch().labels(GATEWAY_NAME);
    let [_, deployments, services, _] = made();
    let watches = async {
        tokio::join!(
            watch_changes(
                all(&api_resource(Kind::GatewayClass)),
                api_server::watch(),
                &changed
            ),
            watch_changes(
                all(&api_resource(Kind::Gateway)),
                api_server::watch(),
                &changed
            ),
            watch_changes(all(&deployments), ours(), &changed),
            watch_changes(all(&services), ours(), &changed),
        )
    };
    let work = async {
        let options = Options {
            settings: options.settings.for_cluster(&client).await,
            ..options
        };
        let mut round = interval(ROUND);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let operator = Operator {
            client: client.clone(),
            options,
            events,
        };
        let mut led = None;
        loop {
            tokio::select! {
                () = changed.notified() => {}
                _ = round.tick() => {}
                begun = term.changed() => {
                    if begun.is_err() {
                        return;
                    }
                    let now = *term.borrow_and_update();
                    if led.replace(now.number()) == Some(now.number()) {
                        continue;
                    }
                }
            }
            sleep(SETTLE).await;
            if !term.borrow().holds(Instant::now()) {
                continue;
            }
            if let Err(error) = operator.apply_all(&term).await {
                tracing::warn!(%error, "gateway reconciliation failed; retrying");
                sleep(SETTLE * 10).await;
                changed.notify_one();
            }
        }
    };
    tokio::select! {
        _ = watches => {}
        () = work => {}
    }
}

/// Sends a notification for each change; retries if the kind is not installed.
async fn watch_changes(api: Api<DynamicObject>, config: watcher::Config, changed: &Notify) {
    let mut stream = pin!(watcher(api, config));
    while let Some(event) = stream.next().await {
        match event {
            Ok(_) => changed.notify_one(),
            Err(error) => {
                tracing::debug!(%error, "watch failed; retrying");
                sleep(REST).await;
            }
        }
    }
}

struct Operator {
    client: Client,
    options: Options,
    events: Events,
}

impl Operator {
    async fn apply_all(&self, term: &watch::Receiver<Term>) -> Result<(), kube::Error> {
        let Some(classes) = self.list(Kind::GatewayClass).await? else {
            return Ok(());
        };
        if !classes
            .iter()
            .any(|class| class["metadata"]["name"] == CLASS)
        {
            self.make_class().await?;
        }
        let own = |class: &&Value| class["spec"]["controllerName"] == GATEWAY_CONTROLLER;
        let own = classes.iter().filter(own);
        let own: BTreeSet<&str> = own
            .filter_map(|class| class["metadata"]["name"].as_str())
            .collect();
        let gateways = self.list(Kind::Gateway).await?.unwrap_or_default();
        let mut failed = None;
        for gateway in &gateways {
            let class = gateway["spec"]["gatewayClassName"].as_str();
            let ends = !gateway["metadata"]["deletionTimestamp"].is_null();
            if ends || !class.is_some_and(|class| own.contains(class)) {
                continue;
            }
            let namespace = gateway["metadata"]["namespace"].as_str();
            if !namespace.is_some_and(|namespace| self.options.scope.covers(namespace)) {
                let note = "Gateways in this namespace are not enabled; see `gateway.namespaces` of the installation";
                self.warn(gateway, "NotEnabled", note);
                continue;
            }
            // An error of one Gateway does not affect the others.
            if let Err(error) = self.apply_one(gateway, term).await {
                failed = Some(error);
            }
        }
        self.remove_left_over(&gateways, &own, term).await?;
        failed.map_or(Ok(()), Err)
    }

    /// Applies the objects of one Gateway.
    async fn apply_one(
        &self,
        gateway: &Value,
        term: &watch::Receiver<Term>,
    ) -> Result<(), kube::Error> {
        let Options {
            settings,
            service_type,
            ..
        } = &self.options;
        for (kind, resource) in made()
            .iter()
            .zip(manifests(gateway, settings, service_type))
        {
            if !term.borrow().holds(Instant::now()) {
                return Ok(());
            }
            self.apply(gateway, kind, &resource).await?;
        }
        Ok(())
    }

    /// Deletes the objects of Gateways under the name of their former class.
    async fn remove_left_over(
        &self,
        gateways: &[Value],
        own: &BTreeSet<&str>,
        term: &watch::Receiver<Term>,
    ) -> Result<(), kube::Error> {
        let [_, deployments, ..] = &made();
        let successors = Successors::new(gateways, own, &self.made_ones(deployments).await?);
        for kind in made() {
            for one in self.made_ones(&kind).await? {
                if !successors.outlive(&one) {
                    continue;
                }
                if !term.borrow().holds(Instant::now()) {
                    return Ok(());
                }
                let (namespace, name) = left_over::name(&one);
                let api: Api<DynamicObject> =
                    Api::namespaced_with(self.client.clone(), &namespace, &kind);
                tracing::info!(
                    kind = kind.kind,
                    namespace,
                    name,
                    "Gateway of a former class: proxies removed"
                );
                match writes::delete(&api, &name, &Seen::of_value(&one)).await {
                    // The object has changed: it is checked again in the next round.
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Lists the objects of a kind that were created for Gateways.
    async fn made_ones(&self, kind: &ApiResource) -> Result<Vec<Value>, kube::Error> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), kind);
        let ours = ListParams::default().labels(&format!("{GATEWAY_NAME},{PART_OF}=maglor"));
        let list = api.list(&ours).await?;
        let items = list.items.iter();
        Ok(items
            .filter_map(|one| serde_json::to_value(one).ok())
            .collect())
    }

    /// Creates the default class, unless a class of that name exists.
    async fn make_class(&self) -> Result<(), kube::Error> {
        let resource = api_resource(Kind::GatewayClass);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let class = DynamicObject::new(CLASS, &resource).data(json!({
            "spec": {"controllerName": GATEWAY_CONTROLLER},
        }));
        match Manager(FIELD_MANAGER).create(&api, &class).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop),
        }
    }

    /// Lists all resources of a kind; `None` if the Gateway API is not installed.
    async fn list(&self, kind: Kind) -> Result<Option<Vec<Value>>, kube::Error> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &api_resource(kind));
        match api.list(&ListParams::default()).await {
            Ok(list) => {
                let items = list.items.iter();
                Ok(Some(
                    items
                        .filter_map(|one| serde_json::to_value(one).ok())
                        .collect(),
                ))
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies an object, unless another writer owns one of that name.
    async fn apply(
        &self,
        gateway: &Value,
        resource: &ApiResource,
        wanted: &Value,
    ) -> Result<(), kube::Error> {
        let kind = resource.kind.as_str();
        let (namespace, name) = left_over::name(wanted);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &namespace, resource);
        let there = api.get_opt(&name).await?;
        let there = there.and_then(|there| serde_json::to_value(there).ok());
        if let Some(there) = &there {
            if there["metadata"]["labels"][GATEWAY_NAME] != gateway["metadata"]["name"] {
                self.refuse(gateway, kind, &name);
                return Ok(());
            }
            if is_as_applied(there, wanted) {
                return Ok(());
            }
        }
        let seen = there.as_ref().map(Seen::of_value);
        let applied = async {
            if there.is_none() && kind == "Deployment" {
                self.make_replicas(&api, wanted).await?;
            }
            let by = Manager(FIELD_MANAGER);
            by.apply(&api, &name, wanted.clone(), seen.as_ref()).await
        };
        match applied.await {
            Ok(_) => Ok(()),
            // The object has changed between the two requests.
            Err(kube::Error::Api(status)) if status.code == 409 && seen.is_some() => {
                Err(kube::Error::Api(status))
            }
            // The namespace is terminating, a quota is exhausted, or the object is invalid, for example because the
            // Gateway's name is not valid for a Service: an immediate retry would not help.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404 | 409 | 422) => {
                self.warn(
                    gateway,
                    "NotApplied",
                    &format!("{kind} {name}: {}", status.message),
                );
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Creates a Deployment with its initial `replicas`, which are owned by a separate field manager, so that a later
    /// apply does not undo scaling.
    async fn make_replicas(
        &self,
        api: &Api<DynamicObject>,
        wanted: &Value,
    ) -> Result<(), kube::Error> {
        let mut first = wanted.clone();
        first["spec"]["replicas"] = json!(self.options.replicas);
        let first: DynamicObject =
            serde_json::from_value(first).map_err(kube::Error::SerdeError)?;
        match Manager(REPLICAS_MANAGER).create(api, &first).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop),
        }
    }

    fn refuse(&self, gateway: &Value, kind: &str, name: &str) {
        let note = format!(
            "{kind} {name} exists and is not owned by this Gateway; rename the Gateway or remove the {kind}"
        );
        self.warn(gateway, "NameTaken", &note);
    }

    fn warn(&self, gateway: &Value, reason: &str, note: &str) {
        let meta = &gateway["metadata"];
        let text = |name: &str| meta[name].as_str().map(str::to_owned);
        tracing::warn!(gateway = %json!([meta["namespace"], meta["name"]]), reason, note, "Gateway not applied");
        let about = ObjectReference {
            api_version: Some(GATEWAY.to_owned()),
            kind: Some("Gateway".to_owned()),
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            ..ObjectReference::default()
        };
        self.events.warn(about, reason, "Apply", note);
    }
}

#[cfg(test)]
mod tests;
