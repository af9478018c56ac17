//! Every YAML block of the documentation is what the program takes that it is for: resources, a proxy's file, or a
//! piece of one, which is put where it belongs.

use std::path::{Path, PathBuf};

use maglor_config::workload::Inbound;
use maglor_controller::analyze::{Severity, analyze};
use serde_json::{Value, json};

struct Block {
    /// `FILE:LINE`.
    place: String,
    text: String,
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    let mut pages: Vec<PathBuf> = docs.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let name = page.file_name().unwrap().to_str().unwrap();
        let mut line = 1;
        for (at, piece) in text.split("```").enumerate() {
            // Every other piece is between two fences.
            if let Some(text) = piece.strip_prefix("yaml\n").filter(|_| at % 2 == 1) {
                blocks.push(Block {
                    place: format!("{name}:{}", line + 1),
                    text: text.to_owned(),
                });
            }
            line += piece.matches('\n').count();
        }
    }
    blocks
}

/// Kinds of Kubernetes' own that the documentation shows and the controller does not read.
const FOREIGN: [&str; 2] = ["kind: ClusterRole", "kind: NetworkPolicy"];

/// Errors of resources.
fn resources(text: &str) -> Result<(), String> {
    let analysis = analyze(&[("block".to_owned(), text.to_owned())]);
    let foreign = FOREIGN.iter().any(|kind| text.contains(kind));
    assert!(
        analysis.resources > 0 || foreign,
        "no resource is read: {text}"
    );
    let problems = analysis.problems.iter();
    let errors = problems.filter(|one| one.severity == Severity::Error);
    match errors.map(ToString::to_string).reduce(|a, b| a + "\n" + &b) {
        None => Ok(()),
        Some(errors) => Err(errors),
    }
}

/// A proxy's file around a piece of one.
fn whole(piece: Value) -> Value {
    let answer = json!({"direct_response": {"status": 204}});
    let is = |field: &str| !piece[field].is_null();
    let listener = |http: Value| json!({"name": "piece", "address": "127.0.0.1:0", "http": http});
    let host = |routes: Value| json!({"virtual_hosts": [{"domains": ["*"], "routes": routes}]});
    let mut whole = json!({});
    if is("http") || is("inbound") || is("tls") || is("authorization") {
        let mut one = listener(host(json!([answer])));
        if is("inbound") {
            one.as_object_mut().unwrap().remove("http");
        }
        if is("authorization") {
            one["tls"] = "mesh".into();
            whole["identity"] =
                json!({"certificate": "c", "private_key": "k", "trust_bundle": "b"});
        }
        let fields = piece.as_object().unwrap().clone();
        one.as_object_mut().unwrap().extend(fields);
        whole["listeners"] = json!([one]);
    } else if is("routes") {
        whole["listeners"] = json!([listener(host(piece["routes"].clone()))]);
    } else if is("match") || is("response_headers") {
        let mut route = answer;
        route
            .as_object_mut()
            .unwrap()
            .extend(piece.as_object().unwrap().clone());
        whole["listeners"] = json!([listener(host(json!([route])))]);
    } else {
        whole = piece;
        if whole["listeners"].is_null() {
            whole["listeners"] = json!([listener(host(json!([answer])))]);
        }
    }
    whole
}

/// The error in a proxy's file, or a piece of it. Clusters and tables that it names without having them are
/// somewhere else.
fn proxy_file(piece: Value) -> Result<(), String> {
    let mut whole = whole(piece);
    loop {
        let text = serde_yaml::to_string(&whole).unwrap();
        let Err(errors) = maglor_config::parse(&text, "block") else {
            return Ok(());
        };
        let mut added = false;
        for error in &errors.0 {
            let name = |what: &str| error.message.strip_prefix(what)?.strip_suffix('`');
            let (list, one) = if let Some(name) = name("there is no cluster `") {
                (
                    "clusters",
                    json!({"name": name, "endpoints": ["127.0.0.1:1"]}),
                )
            } else if let Some(name) = name("there is no route table `") {
                let hosts =
                    json!([{"domains": ["*"], "routes": [{"direct_response": {"status": 204}}]}]);
                (
                    "route_tables",
                    json!({"name": name, "virtual_hosts": hosts}),
                )
            } else {
                return Err(errors.to_string());
            };
            if whole[list].is_null() {
                whole[list] = json!([]);
            }
            let list = whole[list].as_array_mut().unwrap();
            if !list.iter().any(|other| other["name"] == one["name"]) {
                list.push(one);
                added = true;
            }
        }
        if !added {
            return Err(errors.to_string());
        }
    }
}

fn judge(text: &str) -> Result<(), String> {
    let documents =
        maglor_manifests::inject::yaml::documents(text).map_err(|error| error.to_string())?;
    let Some(first) = documents.first() else {
        // Comments only.
        return Ok(());
    };
    let value = &first.value;
    if !value["apiVersion"].is_null() {
        return resources(text);
    }
    if !value["spec"].is_null() {
        let head = "apiVersion: maglor.dev/v1alpha1\nkind: ProxyService\nmetadata: {name: web}\n";
        return resources(&format!("{head}{text}"));
    }
    // docs/xds.md: the metadata of a workload, and of a cluster in addition to Envoy's own fields.
    if !value["gateway"].is_null() {
        let inbound: Inbound = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
        return inbound
            .check("shop/block", true)
            .map_err(|error| error.to_string());
    }
    let words = &value["metadata"]["filter_metadata"]["maglor.dev"];
    if let Value::Object(words) = words {
        let mut cluster = json!({"name": value["name"], "endpoints": ["127.0.0.1:1"]});
        cluster.as_object_mut().unwrap().extend(words.clone());
        return proxy_file(json!({"clusters": [cluster]}));
    }
    let value: Value = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
    proxy_file(value)
}

#[test]
fn every_block_is_taken_by_its_program() {
    let blocks = blocks();
    assert!(blocks.len() > 25, "{}", blocks.len());
    let mut wrong = Vec::new();
    for block in &blocks {
        if let Err(error) = judge(&block.text) {
            wrong.push(format!("{}: {error}", block.place));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_block_that_is_wrong_is_found() {
    for text in [
        "clusters: [{name: a, endpoint: [127.0.0.1:1]}]",
        "routes: [{cluster: a, timeout: 5}]",
        "authorization: {rules: [{form: []}]}",
        "apiVersion: maglor.dev/v1alpha1\nkind: MeshConfig\nmetadata: {name: default}\nspec: {mtls: on}\n",
        "spec: {targetRef: {name: web}, replica: 1}",
        "a: 1\na: 2\n",
    ] {
        assert!(judge(text).is_err(), "{text}");
    }
}
