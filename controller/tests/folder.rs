//! The program with a folder: a delta client over TCP receives the resources of the files, and changes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use maglor_config::raw;
use maglor_controller::index::Index;
use maglor_controller::resource_server::Table;
use maglor_xds::{Health, Kind, decode};

use crate::support;
use crate::support::grpc::{Connection, Stream};
use crate::support::process::Controller;

const NAME: &str = "web.shop.svc.cluster.local:80";

/// The output of the index for every case can be encoded as xDS.
#[test]
fn everything_that_is_given_can_be_served() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/index");
    let mut changes = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let mut index = Index::default();
            for object in support::objects(&std::fs::read_to_string(&path).unwrap()) {
                index.apply(object);
            }
            let resources = index.changes().resources;
            changes += resources.len();
            let unserved = Table::new(false).publish(&resources);
            assert_eq!(unserved, 0, "{}", path.display());
        }
    }
    assert!(changes > 50, "{changes}");
}

/// The last received state of each resource; `None`: it does not exist.
type Seen = BTreeMap<(Kind, String), Option<Bytes>>;

async fn follow(address: &str, node: &str) -> Stream {
    let connection = Connection::open(address, None).await.unwrap();
    let mut stream = Stream::open(connection, node).await;
    for kind in [Kind::Cluster, Kind::Endpoints, Kind::Listener, Kind::Routes] {
        stream.want(kind, &[NAME]);
    }
    stream
}

fn of(seen: &Seen, kind: Kind) -> Option<&Bytes> {
    seen.get(&(kind, NAME.to_owned())).and_then(Option::as_ref)
}

/// `ADDRESS` of those that get requests, `(ADDRESS)` of those that drain.
fn endpoints(seen: &Seen) -> Vec<String> {
    let Some(body) = of(seen, Kind::Endpoints) else {
        return Vec::new();
    };
    let list = decode::endpoints(NAME, body).unwrap().into_iter();
    let mut list: Vec<String> = list
        .map(|one| {
            let address = one.described.address.unwrap();
            match one.health {
                Health::Draining => format!("({address})"),
                _ => address,
            }
        })
        .collect();
    list.sort();
    list
}

fn routes(seen: &Seen) -> Vec<raw::Route> {
    let body = of(seen, Kind::Routes);
    let table = body.map(|body| decode::routes(NAME, body).unwrap());
    table
        .into_iter()
        .flat_map(|table| table.virtual_hosts)
        .flat_map(|host| host.routes)
        .collect()
}

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{port: 80, name: http}]}
---
apiVersion: maglor.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: web, namespace: shop}
spec:
  targetRefs: [{name: web}]
  cluster: {policy: bounce(tries=3), connect_timeout: 1s}
  route: {timeout: 2s, retry: {attempts: 1, retry_on: ['5xx']}}
";

fn slice(endpoints: &str) -> String {
    format!(
        "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-1, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}
ports: [{{name: http, port: 8080}}]
endpoints: [{endpoints}]
"
    )
}

const CONSUMER: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: mine, namespace: client}
spec:
  parentRefs: [{group: '', kind: Service, name: web, namespace: shop}]
  rules: [{name: own, backendRefs: [{name: web, namespace: shop, port: 80}]}]
";

#[tokio::test]
async fn proxies_learn_what_files_say_and_what_changes() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        // As editors do: a whole file takes the place of the old one.
        let new = other.path().join(name);
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, folder.path().join(name)).unwrap();
    };
    put("web.yaml", SERVICE);
    put("slices.yaml", &slice("{addresses: [10.1.0.1]}"));
    let arguments = ["--plain-text", "--listen", "127.0.0.1:0", "--folder"];
    let of_folder = folder.path().to_str().unwrap();
    let arguments = [&arguments[..], &[of_folder]].concat();
    let controller = Controller::start(&other.path().join("ready.json"), &arguments).await;

    let mut shop = follow(&controller.listen, "shop/a").await;
    shop.until("everything is there", |seen| seen.len() == 4)
        .await;
    assert_eq!(endpoints(&shop.seen), ["10.1.0.1:8080"]);
    let cluster = decode::cluster(NAME, of(&shop.seen, Kind::Cluster).unwrap()).unwrap();
    let policy: maglor_balance::PolicySpec = "bounce(tries=3)".parse().unwrap();
    assert_eq!(cluster.raw.policy, Some(policy));
    assert_eq!(
        routes(&shop.seen)[0].timeout.unwrap().0,
        Duration::from_secs(2)
    );

    put(
        "slices.yaml",
        &slice(
            "{addresses: [10.1.0.1], conditions: {ready: false, serving: true, terminating: true}}, {addresses: [10.1.0.2]}",
        ),
    );
    let now = ["(10.1.0.1:8080)", "10.1.0.2:8080"];
    shop.until("endpoints have changed", |seen| endpoints(seen) == now)
        .await;

    // A client of another namespace gets the routes of its own, and only it.
    let mut client = follow(&controller.listen, "client/b").await;
    client
        .until("everything is there", |seen| seen.len() == 4)
        .await;
    put("routes.yaml", CONSUMER);
    let own = |seen: &Seen| {
        routes(seen)
            .iter()
            .any(|route| route.name.as_deref() == Some("client/mine/own"))
    };
    client.until("a namespace has its own routes", own).await;
    assert!(!own(&shop.seen));

    // An invalid file changes nothing; the next valid one does.
    put("slices.yaml", "apiVersion: [");
    put("routes.yaml", "");
    client
        .until("the own routes are gone", |seen| !own(seen))
        .await;
    assert_eq!(endpoints(&shop.seen), now);
    put("slices.yaml", &slice("{addresses: [10.1.0.3]}"));
    shop.until("the file is read again", |seen| {
        endpoints(seen) == ["10.1.0.3:8080"]
    })
    .await;

    std::fs::remove_file(folder.path().join("web.yaml")).unwrap();
    let gone = |seen: &Seen| seen.values().all(Option::is_none);
    shop.until("the Service is gone", gone).await;
}

const LOCAL: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.0.0.1, internalTrafficPolicy: Local, ports: [{port: 80, name: http}]}
";

/// A client without inbound side, such as the proxy of a Gateway, gets nearby endpoints; also if it has subscribed
/// before it was known where it runs.
#[tokio::test]
async fn local_endpoints_are_published_once_the_node_of_a_client_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let new = other.path().join(name);
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, folder.path().join(name)).unwrap();
    };
    put("web.yaml", LOCAL);
    let of_nodes = "{addresses: [10.1.0.1], nodeName: n1}, {addresses: [10.1.0.2], nodeName: n2}";
    put("slices.yaml", &slice(of_nodes));
    let arguments = ["--plain-text", "--listen", "127.0.0.1:0", "--folder"];
    let of_folder = folder.path().to_str().unwrap();
    let arguments = [&arguments[..], &[of_folder]].concat();
    let controller = Controller::start(&other.path().join("ready.json"), &arguments).await;

    let mut client = follow(&controller.listen, "shop/gateway-1").await;
    client
        .until("everything is there", |seen| seen.len() == 4)
        .await;
    assert_eq!(endpoints(&client.seen), [""; 0], "its node is unknown");
    let pod = |node: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, spec: {{nodeName: {node}}}, metadata: {{name: gateway-1, namespace: shop, \
             annotations: {{maglor.dev/injected: outbound}}}}}}"
        )
    };
    for (node, near) in [("n2", "10.1.0.2:8080"), ("n1", "10.1.0.1:8080")] {
        put("pods.yaml", &pod(node));
        client
            .until("it gets what is near", |seen| endpoints(seen) == [near])
            .await;
    }
}
