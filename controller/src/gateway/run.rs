//! The operator: applies the objects of a Gateway whenever the Gateway, its class or one of the objects changes.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::FIELD_MANAGER;
use super::left_over::{self, Successors};
use super::manifests::{PART_OF, manifests};
use crate::api_server::is;
use crate::conditional_writes::{self, Manager, Precondition};
use crate::events::Events;
use crate::index::facts::gateway::{GATEWAY_CONTROLLER, GATEWAY_NAME};
use crate::index::facts::{Key, Kind};
use crate::lease::Term;
use crate::proxy_pod::Settings;
use crate::proxy_service::manifests::is_as_applied;
use crate::reconcile::cache::{Watched, key};
use crate::reconcile::{self, Again, Cache, Lookup, Reconciler, Watch, Watches};
use crate::scope::{Certificates, Scope};
use crate::source::kubernetes::api_resource;

/// The pause before a rejected object is applied again.
const REJECTED: Duration = Duration::from_secs(30);

/// The class that the operator creates.
const CLASS: &str = "maglor";
const GATEWAY: &str = "gateway.networking.k8s.io/v1";
/// The field manager of the initial number of proxies of a new Deployment.
const REPLICAS_MANAGER: &str = "maglor-gateway-replicas";

/// Options for the proxies of all Gateways.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The image of the proxies, and the address of this control plane.
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

/// Runs the operator until the process ends.
pub(crate) async fn run(
    client: Client,
    options: Options,
    term: watch::Receiver<Term>,
    events: Events,
) {
    let options = Options {
        settings: options.settings.for_cluster(&client).await,
        ..options
    };
    let begin = |watches| Operator::new(client.clone(), options.clone(), events.clone(), &watches);
    reconcile::run(term, begin).await;
}

/// A unit of reconciliation.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Unit {
    /// The class that the operator creates.
    Class,
    /// The objects of a Gateway.
    Gateway(Key),
}

/// A kind of a Gateway's objects.
struct Made {
    resource: ApiResource,
    there: Box<dyn Lookup>,
}

struct Operator {
    client: Client,
    options: Options,
    events: Events,
    classes: Cache<DynamicObject>,
    gateways: Cache<DynamicObject>,
    /// The kinds of objects, in the order of [`manifests`].
    made: [Made; 4],
}

impl Reconciler for Operator {
    type Unit = Unit;

    const NAME: &'static str = "gateways";

    async fn reconcile(&mut self, unit: &Unit) -> Result<Again, kube::Error> {
        match unit {
            Unit::Class => self.make_class().await?,
            Unit::Gateway(key) => {
                if let Some(gateway) = self.gateways.value(key) {
                    return self.attend(&gateway).await;
                }
            }
        }
        Ok(None)
    }
}

impl Operator {
    fn new(client: Client, options: Options, events: Events, watches: &Watches<Unit>) -> Self {
        let all = |kind| {
            let resource = api_resource(kind);
            Watch::of(vec![Api::all_with(client.clone(), &resource)], resource)
        };
        let gateway = |gateway: &DynamicObject| vec![Unit::Gateway(key(gateway))];
        let gateways = watches.open(all(Kind::Gateway), gateway, Vec::new);
        let of_class = {
            let gateways = gateways.clone();
            move |_: &DynamicObject| {
                let gateways = gateways.all();
                let gateways = gateways.iter().map(|one| Unit::Gateway(key(&**one)));
                gateways.chain([Unit::Class]).collect()
            }
        };
        let class = || vec![Unit::Class];
        let classes = watches.open(all(Kind::GatewayClass), of_class, class);
        Self {
            made: [
                Made::of::<ServiceAccount>(&client, &options.scope, watches),
                Made::of::<Deployment>(&client, &options.scope, watches),
                Made::of::<Service>(&client, &options.scope, watches),
                Made::of::<PodDisruptionBudget>(&client, &options.scope, watches),
            ],
            client,
            options,
            events,
            classes,
            gateways,
        }
    }

    /// Returns the names of the mesh's classes.
    fn own_classes(&self) -> BTreeSet<String> {
        let own =
            |class: &DynamicObject| class.data["spec"]["controllerName"] == GATEWAY_CONTROLLER;
        let own = self.classes.filter(own);
        own.iter().map(|class| class.name_any()).collect()
    }

    /// Applies the objects of a Gateway, and deletes those for its former class.
    async fn attend(&self, gateway: &Value) -> Result<Again, kube::Error> {
        if !gateway["metadata"]["deletionTimestamp"].is_null() {
            return Ok(None);
        }
        let own = self.own_classes();
        let class = gateway["spec"]["gatewayClassName"].as_str();
        let namespace = gateway["metadata"]["namespace"].as_str();
        let ours = class.is_some_and(|class| own.contains(class));
        let served = namespace.is_some_and(|namespace| self.options.scope.covers(namespace));
        let mut again = None;
        if ours && served {
            let Options {
                settings,
                service_type,
                ..
            } = &self.options;
            let wanted = manifests(gateway, settings, service_type);
            for (kind, wanted) in self.made.iter().zip(&wanted) {
                again = again.max(self.apply(gateway, kind, wanted).await?);
            }
        } else if ours {
            let note = "Gateways in this namespace are not enabled; see `gateway.namespaces` of the installation";
            self.warn(gateway, "NotEnabled", note);
        }
        self.remove_left_over(gateway, &own).await?;
        Ok(again)
    }

    /// Deletes the objects of a Gateway under the name of its former class.
    async fn remove_left_over(
        &self,
        gateway: &Value,
        own: &BTreeSet<String>,
    ) -> Result<(), kube::Error> {
        let (namespace, of) = left_over::name(gateway);
        let made = |kind: &Made| {
            kind.there.values(&|meta| {
                let labels = meta.labels.as_ref();
                let gateway = labels.and_then(|labels| labels.get(GATEWAY_NAME));
                gateway == Some(&of) && meta.namespace.as_ref() == Some(&namespace)
            })
        };
        let own = own.iter().map(String::as_str).collect();
        let gateways = std::slice::from_ref(gateway);
        let successors = Successors::new(gateways, &own, &made(&self.made[1]));
        for kind in &self.made {
            for one in made(kind).iter().filter(|one| successors.outlive(one)) {
                let (_, name) = left_over::name(one);
                let resource = &kind.resource;
                tracing::info!(
                    kind = resource.kind,
                    namespace,
                    name,
                    "object removed: its Gateway now has another class"
                );
                let api = self.api(&namespace, resource);
                match conditional_writes::delete(&api, &name, &Precondition::of_value(one)).await {
                    // The object has changed: its next version causes an event.
                    Err(error) if is(&error, 404) || is(&error, 409) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Creates the default class, unless a class of that name exists.
    async fn make_class(&self) -> Result<(), kube::Error> {
        if self.classes.get(&Key::new("", CLASS)).is_some() {
            return Ok(());
        }
        let resource = api_resource(Kind::GatewayClass);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let class = DynamicObject::new(CLASS, &resource).data(json!({
            "spec": {"controllerName": GATEWAY_CONTROLLER},
        }));
        match Manager(FIELD_MANAGER).create(&api, &class).await {
            // The class exists, or the Gateway API is not installed.
            Err(error) if is(&error, 404) || is(&error, 409) => Ok(()),
            other => other.map(drop),
        }
    }

    fn api(&self, namespace: &str, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }

    /// Applies an object, unless another writer owns an object of this name. If it was rejected, returns when to try
    /// again.
    async fn apply(
        &self,
        gateway: &Value,
        kind: &Made,
        wanted: &Value,
    ) -> Result<Again, kube::Error> {
        let (namespace, name) = left_over::name(wanted);
        let cached = kind.there.value(&Key::new(&namespace, &name));
        if cached.is_some_and(|there| is_as_applied(&there, wanted)) {
            return Ok(None);
        }
        let resource = &kind.resource;
        let kind = resource.kind.as_str();
        let api = self.api(&namespace, resource);
        // The cache may be out of date, and does not contain objects of other writers.
        let there = api.get_opt(&name).await?;
        let there = there.and_then(|there| serde_json::to_value(there).ok());
        if let Some(there) = &there {
            if there["metadata"]["labels"][GATEWAY_NAME] != gateway["metadata"]["name"] {
                self.refuse(gateway, kind, &name);
                return Ok(Some(REJECTED));
            }
            if is_as_applied(there, wanted) {
                return Ok(None);
            }
        }
        let seen = there.as_ref().map(Precondition::of_value);
        let applied = async {
            if there.is_none() && kind == "Deployment" {
                self.make_replicas(&api, wanted).await?;
            }
            let by = Manager(FIELD_MANAGER);
            by.apply(&api, &name, wanted.clone(), seen.as_ref()).await
        };
        match applied.await {
            Ok(_) => Ok(None),
            // The object has changed between the two requests: its next version causes an event.
            Err(error) if is(&error, 409) && seen.is_some() => Ok(None),
            // The namespace is terminating, a quota is exhausted, or the object is invalid, for example because the
            // Gateway's name is not valid for a Service: an immediate retry would not help.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404 | 409 | 422) => {
                self.warn(
                    gateway,
                    "NotApplied",
                    &format!("{kind} {name}: {}", status.message),
                );
                Ok(Some(REJECTED))
            }
            Err(error) => Err(error),
        }
    }

    /// Creates a Deployment with its initial `replicas`, which a separate field manager owns, so that a later apply
    /// does not undo scaling.
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
            Err(error) if is(&error, 409) => Ok(()),
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

impl Made {
    fn of<K>(client: &Client, scope: &Scope, watches: &Watches<Unit>) -> Self
    where
        K: Watched
            + kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Serialize,
    {
        let wanted = Watch::<K>::new(apis(scope, client))
            .labels(&format!("{GATEWAY_NAME},{PART_OF}=maglor"));
        let gateway = |object: &K| {
            let of = object.labels().get(GATEWAY_NAME).map(String::as_str);
            let namespace = object.namespace().unwrap_or_default();
            vec![Unit::Gateway(Key::new(&namespace, of.unwrap_or_default()))]
        };
        Self {
            resource: ApiResource::erase::<K>(&()),
            there: Box::new(watches.open(wanted, gateway, Vec::new)),
        }
    }
}

/// Returns clients for the objects of a kind in the namespaces of a scope.
fn apis<K>(scope: &Scope, client: &Client) -> Vec<Api<K>>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match scope {
        Scope::Everywhere => vec![Api::all(client.clone())],
        Scope::In(some) => {
            let some = some.iter();
            some.map(|one| Api::namespaced(client.clone(), one))
                .collect()
        }
        Scope::Off => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
