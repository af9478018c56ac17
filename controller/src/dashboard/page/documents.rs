//! The documents of the API: the graph, a service, receipts, decisions.

use serde_json::{Map, Value, json};

use crate::dashboard::page::graph_layout::Places;
use crate::dashboard::page::model::{
    Details, Edge, Endpoint, Mesh, Proxy, Share, Signals, Vertex, View,
};
use crate::dashboard::page::number::{Fields, rounded};

/// The time and kind of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    /// Unix seconds.
    pub(crate) at: f64,
    /// Whether it is from the history.
    pub(crate) past: bool,
}

impl When {
    fn fields(self) -> Fields {
        let mut fields = Fields::default();
        fields.set("at", (self.at * 10.0).round() / 10.0);
        fields.set("past", self.past);
        fields
    }
}

/// Returns the graph.
pub(crate) fn mesh(mesh: &Mesh, view: View, places: &Places, when: When) -> Value {
    let mut fields = when.fields();
    fields.set("view", view.name());
    fields.set("window_seconds", mesh.window.as_secs());
    if !when.past {
        fields.set(
            "versions",
            json!({"receipts": mesh.receipts, "decisions": mesh.decisions}),
        );
    }
    fields.set(
        "layout",
        json!({"width": places.size.0.ceil(), "height": places.size.1.ceil()}),
    );
    fields.set("totals", totals(mesh));
    let vertices = mesh.vertices.iter().map(|(name, vertex)| {
        let mut fields = vertex_fields(name, vertex, mesh);
        if let Some(place) = places.boxes.get(name) {
            for (field, value) in [
                ("x", place.x),
                ("y", place.y),
                ("width", place.width),
                ("height", place.height),
            ] {
                fields.set(field, value.round());
            }
        }
        (name.clone(), fields.into())
    });
    fields.set("vertices", vertices.collect::<Map<String, Value>>());
    let edges = mesh.edges.iter().map(|edge| {
        let mut fields = edge_fields(edge);
        let path = places.paths.get(&(edge.from.clone(), edge.to.clone()));
        if let Some(path) = path {
            fields.set("path", path.data.clone());
            fields.flag("reversed", path.reversed);
            let label = path.label.map(|place| {
                let [x, y, width, height] =
                    [place.x, place.y, place.width, place.height].map(f64::round);
                json!({"x": x, "y": y, "width": width, "height": height})
            });
            fields.set_known("label", label);
        }
        (edge_name(edge), fields.into())
    });
    fields.set("edges", edges.collect::<Map<String, Value>>());
    let moves = mesh.moves.as_ref().map(|moves| {
        let moves = moves.iter().map(|one| {
            json!({"vertex": one.vertex, "from": one.from, "to": one.to, "reason": one.reason})
        });
        moves.collect::<Vec<_>>()
    });
    fields.set_known("moves", moves);
    fields.into()
}

/// Returns the name of an edge.
pub(crate) fn edge_name(edge: &Edge) -> String {
    format!("{}>{}", edge.from, edge.to)
}

/// Returns the sums over all vertices that are called.
fn totals(mesh: &Mesh) -> Value {
    let mut sum = Signals::default();
    for signals in mesh.vertices.values().filter_map(|vertex| vertex.signals) {
        sum.rps += signals.rps;
        sum.failures += signals.failures;
        sum.in_flight += signals.in_flight;
    }
    let mut fields = Fields::default();
    fields.number("rps", Some(sum.rps));
    fields.number("success", sum.success());
    fields.number("in_flight", Some(sum.in_flight));
    fields.set("vertices", mesh.vertices.len());
    fields.set("edges", mesh.edges.len());
    fields.into()
}

fn signal_fields(signals: Option<&Signals>) -> Fields {
    let mut fields = Fields::default();
    let Some(signals) = signals else {
        return fields;
    };
    fields.number("rps", Some(signals.rps));
    fields.number("success", signals.success());
    fields.number("mean_ms", signals.mean_ms);
    fields.number("p50_ms", signals.p50_ms);
    fields.number("p99_ms", signals.p99_ms);
    fields.number("in_flight", Some(signals.in_flight));
    fields
}

fn vertex_fields(name: &str, vertex: &Vertex, mesh: &Mesh) -> Fields {
    let mut fields = signal_fields(vertex.signals.as_ref());
    let (namespace, short) = match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, name),
    };
    fields.set("name", short);
    fields.set_known("namespace", namespace);
    fields.set("kind", vertex.kind.name());
    fields.set("meshed", vertex.meshed);
    fields.set_known("replicas", vertex.replicas);
    fields.set_known("ready", vertex.ready);
    fields.set_known("mtls", vertex.mtls);
    fields.set_known("policy", vertex.policy.clone());
    fields.flag("local_first", vertex.local_first);
    fields.flag("contradicted", vertex.contradicted);
    fields.number("cpu_used_millis", vertex.cpu_used_millis);
    fields.number("memory_used_mib", vertex.memory_used_mib);
    fields.set_known("service", vertex.service.clone());
    fields.set_known("zone", vertex.zone.clone());
    fields.set_known("cpu_millis", vertex.capacity.map(|(cpu, _)| cpu));
    fields.set_known("memory_mib", vertex.capacity.map(|(_, memory)| memory));
    if !vertex.nodes.is_empty() {
        fields.set("nodes", json!(vertex.nodes));
    }
    if vertex.kind == View::Node {
        fields.set("vertices", json!(vertex.vertices));
    }
    let mut moves = mesh.moves.iter().flatten();
    if let Some(one) = moves.find(|one| one.vertex == name) {
        fields.set(
            "move",
            json!({"from": one.from, "to": one.to, "reason": one.reason}),
        );
    }
    fields
}

fn edge_fields(edge: &Edge) -> Fields {
    let mut fields = Fields::default();
    fields.set("from", edge.from.clone());
    fields.set("to", edge.to.clone());
    if edge.delay_ms.is_none() {
        fields.extend(signal_fields(Some(&edge.signals)));
    }
    fields.number("retries", edge.retries);
    fields.number("bytes_per_second", edge.bytes_per_second);
    fields.number("connections_per_second", edge.connections_per_second);
    fields.flag("tcp", edge.tcp);
    fields.set_known("mtls", edge.mtls);
    fields.number("mtls_share", edge.mtls_share);
    fields.set_known("ejected", edge.ejected);
    fields.set_known("policy", edge.policy.clone());
    fields.number("delay_ms", edge.delay_ms);
    if !edge.split.is_empty() {
        fields.set("split", shares(&edge.split));
    }
    fields
}

fn shares(split: &[Share]) -> Vec<Value> {
    let total: f64 = split.iter().map(|one| one.signals.rps).sum();
    let share = |one: &Share| {
        let mut fields = signal_fields(Some(&one.signals));
        fields.set("name", one.name.clone());
        fields.set("weight", one.weight);
        fields.number("share", (total > 0.0).then(|| one.signals.rps / total));
        Value::from(fields)
    };
    split.iter().map(share).collect()
}

/// Returns a service with its neighbours in the graph; `None` if it is not in the graph.
pub(crate) fn service(
    name: &str,
    mesh: &Mesh,
    details: Option<&Details>,
    when: When,
) -> Option<Value> {
    let vertex = mesh.vertices.get(name)?;
    let mut fields = when.fields();
    fields.set("name", name);
    fields.set("vertex", vertex_fields(name, vertex, mesh));
    let calls = |is: &dyn Fn(&Edge) -> bool, other: &dyn Fn(&Edge) -> String| {
        let edges = mesh.edges.iter().filter(|edge| is(edge));
        let edges = edges.map(|edge| (other(edge), Value::from(edge_fields(edge))));
        edges.collect::<Map<String, Value>>()
    };
    let callers = calls(&|edge| edge.to == name, &|edge| edge.from.clone());
    fields.set("callers", callers);
    let callees = calls(&|edge| edge.from == name, &|edge| edge.to.clone());
    fields.set("callees", callees);
    if let Some(details) = details {
        fields.extend(detail_fields(details));
    }
    Some(fields.into())
}

fn detail_fields(details: &Details) -> Fields {
    let mut fields = Fields::default();
    let endpoints = details.endpoints.iter().map(endpoint);
    fields.set("endpoints", endpoints.collect::<Vec<_>>());
    let named = |list: &[(String, Value)]| {
        let each = list.iter();
        let each = each.map(|(name, resource)| json!({"name": name, "resource": resource}));
        each.collect::<Vec<_>>()
    };
    fields.set("routes", named(&details.routes));
    fields.set("clusters", named(&details.clusters));
    let policies = details.policies.as_ref().map(|policies| {
        let policies = policies.iter();
        let policies = policies.map(|(kind, name)| json!({"kind": kind, "name": name}));
        policies.collect::<Vec<_>>()
    });
    fields.set_known("policies", policies);
    let proxies = details.proxies.iter().map(proxy);
    fields.set("proxies", proxies.collect::<Vec<_>>());
    fields
}

fn endpoint(endpoint: &Endpoint) -> Value {
    let mut fields = signal_fields(endpoint.signals.as_ref());
    fields.set("address", endpoint.address.clone());
    fields.set_known("pod", endpoint.pod.clone());
    fields.set_known("node", endpoint.node.clone());
    fields.set_known("zone", endpoint.zone.clone());
    fields.set("health", endpoint.health);
    fields.set("weight", endpoint.weight);
    fields.number("age_seconds", endpoint.age.map(|age| age.as_secs_f64()));
    fields.into()
}

fn proxy(proxy: &Proxy) -> Value {
    let mut fields = Fields::default();
    fields.set("pod", proxy.pod.clone());
    fields.set_known("node", proxy.node.clone());
    fields.set_known("memory_bytes", proxy.memory_bytes);
    fields.number("age_seconds", proxy.age.map(|age| age.as_secs_f64()));
    fields.into()
}

/// Returns a list of objects as a document.
pub(crate) fn list(name: &str, values: Vec<Value>, when: When) -> Value {
    let mut fields = when.fields();
    fields.set(name, values);
    fields.into()
}

/// Returns a series over time.
pub(crate) fn series(name: Option<&str>, to: u64, series: &super::history::Series) -> Value {
    type Pick = fn(&Signals) -> Option<f64>;
    let picks: [(&str, Pick); 5] = [
        ("rps", |one| Some(one.rps)),
        ("success", Signals::success),
        ("p50_ms", |one| one.p50_ms),
        ("p99_ms", |one| one.p99_ms),
        ("in_flight", |one| Some(one.in_flight)),
    ];
    let mut fields = Fields::default();
    fields.set_known("name", name);
    fields.set("from", series.from);
    fields.set("to", to);
    fields.set("step", series.step);
    for (field, pick) in picks {
        let values = series.points.iter().map(|point| {
            let value = point.as_ref().and_then(pick).and_then(rounded);
            value.unwrap_or(Value::Null)
        });
        fields.set(field, values.collect::<Vec<_>>());
    }
    fields.into()
}
