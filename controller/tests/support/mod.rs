//! Shared code of the tests: objects and the output of an index; in modules, processes, clients and stand-ins.

pub(crate) mod api_port;
pub(crate) mod clock;
pub(crate) mod due;
#[allow(dead_code, reason = "tests of the library use the rest of it")]
pub(crate) mod fake_api;
pub(crate) mod fixture;
pub(crate) mod grpc;
pub(crate) mod members;
pub(crate) mod mesh;
pub(crate) mod names;
pub(crate) mod on_cluster;
pub(crate) mod process;
pub(crate) mod signer;

use std::fmt::Write as _;

use maglor_controller::index::facts::{Kind, Object};
use maglor_controller::index::{Consumer, Index, Listener, Resource};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// The objects of a text of several YAML documents.
pub(crate) fn objects(text: &str) -> Vec<Object> {
    let documents = serde_yaml::Deserializer::from_str(text);
    let documents = documents.map(|document| Value::deserialize(document).unwrap());
    let documents = documents.filter(|value| !value.is_null());
    documents
        .map(|value| Object::read(&value).unwrap())
        .collect()
}

/// The output of an index, in a fixed order.
pub(crate) fn published(index: &Index) -> Vec<(String, Value)> {
    let resources = index.resources().map(|(id, resource)| {
        let consumer = id.consumer.as_ref().map(|one| match one {
            Consumer::Namespace(name) => format!(" for {name}"),
            Consumer::Node(name) => format!(" on {name}"),
            Consumer::Zone(name) => format!(" in {name}"),
        });
        let name = format!("{:?} {}{}", id.kind, id.name, consumer.unwrap_or_default());
        (name, value(resource))
    });
    let statuses = index.statuses().map(|(kind, key, status)| {
        let name = format!("status of {} {key}", Kind::names(kind).1);
        (name, status.to_json())
    });
    let mut all: Vec<_> = resources.chain(statuses).collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

pub(crate) fn rendered(published: &[(String, Value)]) -> String {
    let mut text = String::new();
    for (name, value) in published {
        let mut value = value.clone();
        prune(&mut value);
        writeln!(text, "--- {name}").unwrap();
        text.push_str(&serde_yaml::to_string(&value).unwrap());
    }
    text
}

fn value(resource: &Resource) -> Value {
    let json = |value: serde_json::Result<Value>| value.unwrap();
    match resource {
        Resource::Cluster(cluster) => json(serde_json::to_value(cluster)),
        Resource::Endpoints(list) => list
            .iter()
            .map(|one| json!({"at": one.described, "draining": one.draining.then_some(true)}))
            .collect(),
        Resource::Inbound(inbound) => json(serde_json::to_value(inbound)),
        Resource::Listener(Listener::Http { routes, bytes }) => {
            json!({"http": routes, "bytes": bytes})
        }
        Resource::Listener(Listener::Tcp { cluster }) => json!({"tcp": cluster}),
        Resource::Routes(table) => json(serde_json::to_value(table)),
    }
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(prune);
        }
        Value::Array(list) => list.iter_mut().for_each(prune),
        _ => {}
    }
}
