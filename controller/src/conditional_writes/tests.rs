use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Config;

use maglor_telemetry::Registry;

use super::*;

/// A request to the API server: method, path with query, body.
type Asked = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// Responds with 200 and an object; does not respond to requests about a ConfigMap `silent`.
async fn answer(request: Request<Incoming>, asked: Asked) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    asked
        .lock()
        .unwrap()
        .push((head.method, head.uri.to_string(), body));
    if head.uri.path().ends_with("/silent") {
        std::future::pending::<()>().await;
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    Response::new(Full::from(object.to_string()))
}

async fn start() -> (Client, Asked) {
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let answer = move |request| answer(request, Arc::clone(&seen));
    let address = crate::api_port::start(answer).await;
    let mut config = Config::new(format!("http://{address}").parse().unwrap());
    config.default_retry = false;
    (Client::try_from(config).unwrap(), asked)
}

const BY: Manager = Manager("tester");

fn seen() -> Precondition {
    Precondition::of_value(&json!({"metadata": {"uid": "u1", "resourceVersion": "7"}}))
}

/// Every change of an observed object contains its UID and version.
#[tokio::test]
async fn every_write_has_its_precondition() {
    let (client, asked) = start().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "n");
    let pods: Api<Pod> = Api::namespaced(client, "n");
    let change = || json!({"metadata": {"name": "a"}});
    let seen = seen();
    BY.apply(&api, "a", change(), Some(&seen)).await.unwrap();
    BY.apply_beside(&api, "a", change(), Some(&seen))
        .await
        .unwrap();
    BY.apply_status(&api, "a", change(), &seen).await.unwrap();
    BY.merge(&api, "a", change(), &seen).await.unwrap();
    BY.merge_status(&api, "a", change(), &seen).await.unwrap();
    BY.merge_strategic(&api, "a", change(), &seen)
        .await
        .unwrap();
    let patches = std::mem::take(&mut *asked.lock().unwrap());
    assert_eq!(patches.len(), 6);
    for (method, path, body) in &patches {
        assert_eq!(method, Method::PATCH, "{path}");
        assert!(path.contains("fieldManager=tester"), "{path}");
        let meta = &body["metadata"];
        assert_eq!(
            (&meta["uid"], &meta["resourceVersion"]),
            (&json!("u1"), &json!("7")),
            "{path}"
        );
    }
    delete(&api, "a", &seen).await.unwrap();
    evict(&pods, "a", &seen).await.unwrap();
    let deletions = std::mem::take(&mut *asked.lock().unwrap());
    let [(_, _, deletion), (_, path, eviction)] = &deletions[..] else {
        panic!("{deletions:?}");
    };
    let expected = json!({"uid": "u1", "resourceVersion": "7"});
    assert_eq!(deletion["preconditions"], expected);
    assert!(path.contains("/pods/a/eviction"), "{path}");
    assert_eq!(eviction["deleteOptions"]["preconditions"], expected);
}

/// A creation takes over no fields from a client that was faster.
#[tokio::test]
async fn what_was_not_there_is_not_taken_by_force() {
    let (client, asked) = start().await;
    let api: Api<ConfigMap> = Api::namespaced(client, "n");
    BY.apply(&api, "a", json!({}), None).await.unwrap();
    BY.apply(&api, "a", json!({}), Some(&seen())).await.unwrap();
    BY.apply_beside(&api, "a", json!({}), Some(&seen()))
        .await
        .unwrap();
    let asked = asked.lock().unwrap();
    let forced: Vec<bool> = asked
        .iter()
        .map(|(_, path, _)| path.contains("force=true"))
        .collect();
    assert_eq!(forced, [false, true, false]);
}

#[tokio::test]
async fn writes_do_not_outlive_the_term() {
    let (client, asked) = start().await;
    let (sender, term) = watch::channel(Term::held());
    let registry = Registry::new(1);
    let fenced = fenced(&client, term, WriteMetrics::new(&registry));
    let api: Api<ConfigMap> = Api::namespaced(fenced, "n");
    BY.merge(&api, "a", json!({}), &seen()).await.unwrap();
    sender.send_replace(Term::of_seconds(0));
    let refused = BY.merge(&api, "a", json!({}), &seen()).await.unwrap_err();
    assert!(
        refused.to_string().contains("no longer the leader"),
        "{refused}"
    );
    let refused = delete(&api, "a", &seen()).await.unwrap_err();
    assert!(
        refused.to_string().contains("no longer the leader"),
        "{refused}"
    );
    // Reads need no precondition.
    api.get("a").await.unwrap();
    let asked = asked.lock().unwrap();
    let methods: Vec<&Method> = asked.iter().map(|(method, ..)| method).collect();
    assert_eq!(methods, [Method::PATCH, Method::GET]);
    let path = &asked[0].1;
    assert!(
        path.ends_with("&timeout=4s"),
        "the API server has a limit, too: {path}"
    );
    let counted = registry.encode();
    assert!(
        counted.contains("writes_total{result=\"done\"} 1\n"),
        "{counted}"
    );
    assert!(
        counted.contains("writes_total{result=\"late\"} 2\n"),
        "{counted}"
    );
}

/// The result of a write without a response is unknown; the write is abandoned before another replica may write.
#[tokio::test]
async fn a_write_without_an_answer_is_given_up() {
    let (client, _asked) = start().await;
    let (_sender, term) = watch::channel(Term::held());
    let fenced = fenced(&client, term, WriteMetrics::new(&Registry::new(1)));
    let api: Api<ConfigMap> = Api::namespaced(fenced, "n");
    let begun = Instant::now();
    let failed = BY.merge(&api, "silent", json!({}), &seen()).await;
    let error = failed.unwrap_err().to_string();
    assert!(error.contains("timeout after"), "{error}");
    assert!(begun.elapsed() >= lease::REQUEST);
}

/// Files that may write in other ways: a replica's own Leases, and reviews that change nothing.
const OTHERS: [&str; 5] = [
    "dashboard/port_forward.rs",
    "dashboard/review.rs",
    "identity/replicas.rs",
    "identity/review.rs",
    "lease.rs",
];
/// Identifiers that indicate a write.
const WORDS: [&str; 4] = ["DeleteParams", "EvictParams", "PatchParams", "PostParams"];

#[test]
fn every_write_is_one_of_these() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut found) = (vec![folder.clone()], Vec::new());
    while let Some(one) = folders.pop() {
        for entry in fs::read_dir(one).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&folder).unwrap().display().to_string();
            let tests = name.contains("tests");
            if tests || name == "conditional_writes.rs" || OTHERS.contains(&name.as_str()) {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            if WORDS.iter().any(|word| text.contains(word)) {
                found.push(name);
            }
        }
    }
    assert!(
        found.is_empty(),
        "by `crate::conditional_writes` instead: {found:?}"
    );
}
