//! Checks the classes of Gateways, which may be missing from the files or belong to another controller, and routes to
//! Gateways that are missing or belong to another controller.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Place, Problem, Severity, word};
use crate::index::Index;
use crate::index::facts::gateway::GATEWAY_CONTROLLER;
use crate::index::facts::{Key, Kind, Object};

/// The group of Gateways.
const GROUP: &str = "gateway.networking.k8s.io";
/// The class that the chart installs.
const OWN: &str = "maglor";

/// Classes, Gateways, and the resources that refer to them.
#[derive(Default)]
pub(super) struct Gateways<'a> {
    /// Controller of each class, by the name of the class.
    classes: BTreeMap<String, String>,
    there: BTreeSet<Key>,
    gateways: Vec<(Place<'a>, Value)>,
    routes: Vec<(Place<'a>, Value)>,
}

fn namespace(value: &Value) -> &str {
    let namespace = word(&value["metadata"]["namespace"]);
    if namespace.is_empty() {
        "default"
    } else {
        namespace
    }
}

impl<'a> Gateways<'a> {
    /// Collects a resource if it is relevant.
    pub(super) fn take(&mut self, place: Place<'a>, value: &Value) {
        match Kind::of(word(&value["apiVersion"]), word(&value["kind"])) {
            Some(Kind::GatewayClass) => {
                let name = word(&value["metadata"]["name"]).to_owned();
                let controller = word(&value["spec"]["controllerName"]).to_owned();
                self.classes.insert(name, controller);
            }
            Some(Kind::Gateway) => {
                let name = word(&value["metadata"]["name"]);
                self.there.insert(Key::new(namespace(value), name));
                self.gateways.push((place, value.clone()));
            }
            Some(Kind::HttpRoute | Kind::GrpcRoute) => self.routes.push((place, value.clone())),
            _ => {}
        }
    }

    /// Returns the Gateways whose class is not in the files.
    fn unclassed(&self) -> impl Iterator<Item = (&Place<'a>, &Value, &str)> {
        let each = self
            .gateways
            .iter()
            .map(|(place, value)| (place, value, word(&value["spec"]["gatewayClassName"])));
        each.filter(|(_, _, class)| !self.classes.contains_key(*class))
    }

    /// Returns the Gateways of other controllers, each with its class and the name of the controller.
    fn foreign(&self) -> impl Iterator<Item = (&Place<'a>, &Value, &str, &str)> {
        self.gateways.iter().filter_map(|(place, value)| {
            let class = word(&value["spec"]["gatewayClassName"]);
            let controller = self.classes.get(class)?;
            (controller != GATEWAY_CONTROLLER).then_some((place, value, class, controller.as_str()))
        })
    }

    /// Makes the index treat missing classes as classes of the mesh, so that their Gateways are checked.
    pub(super) fn assume(&self, index: &mut Index) {
        for (_, _, class) in self.unclassed() {
            let class = json!({
                "apiVersion": format!("{GROUP}/v1"),
                "kind": "GatewayClass",
                "metadata": {"name": class},
                "spec": {"controllerName": GATEWAY_CONTROLLER},
            });
            if let Ok(class) = Object::read(&class) {
                index.apply(class);
            }
        }
    }

    /// Reports assumed classes and missing Gateways.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let classes = self.unclassed().filter(|(_, _, class)| *class != OWN);
        let classes = classes.map(|(place, value, class)| {
            let what = format!(
                "spec.gatewayClassName: GatewayClass `{class}` is in none of the files; the Gateway is analyzed with class `{OWN}`"
            );
            place.problem(value, Severity::Warning, "ClassNotFound", what)
        });
        let mut problems: Vec<Problem> = classes.collect();
        let mut foreign = BTreeSet::new();
        for (place, value, class, controller) in self.foreign() {
            let what = format!(
                "spec.gatewayClassName: GatewayClass `{class}` belongs to controller `{controller}`, so this Gateway is ignored; use class `{OWN}`"
            );
            problems.push(place.problem(value, Severity::Warning, "ForeignClass", what));
            foreign.insert(Key::new(namespace(value), word(&value["metadata"]["name"])));
        }
        for (place, value) in &self.routes {
            let parents = value["spec"]["parentRefs"].as_array();
            for (at, parent) in parents.into_iter().flatten().enumerate() {
                let is = |field: &str, default: &str| {
                    parent[field].is_null() || word(&parent[field]) == default
                };
                if !(is("group", GROUP) && is("kind", "Gateway")) {
                    continue;
                }
                let own = Some(word(&parent["namespace"])).filter(|own| !own.is_empty());
                let key = Key::new(own.unwrap_or(namespace(value)), word(&parent["name"]));
                if foreign.contains(&key) {
                    let what = format!(
                        "spec.parentRefs[{at}]: Gateway {key} has another controller's class and receives no requests"
                    );
                    let problem = place.problem(value, Severity::Warning, "ForeignClass", what);
                    problems.push(problem);
                } else if !self.there.contains(&key) {
                    let what = format!(
                        "spec.parentRefs[{at}]: Gateway {key} is in none of the files; analyze its file together with this one"
                    );
                    let problem = place.problem(value, Severity::Error, "NoMatchingParent", what);
                    problems.push(problem);
                }
            }
        }
        problems
    }
}
