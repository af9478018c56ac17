//! A cluster of two nodes, an application with sidecars, real requests through all of it, and a complete clean-up.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when it skips.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::{
    Cluster, ClusterError, Image, Kubectl, Machine, Options, static_program,
};
use serde_json::Value;

const NAME: &str = "e2e";

/// One way between the nodes.
const DELAY: Duration = Duration::from_millis(5);

/// Requests through both sidecars.
const REQUESTS: usize = 200;

const LIMIT: Duration = Duration::from_secs(10);

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn requests_pass_through_sidecars_on_two_nodes_and_nothing_is_left() {
    if !Cluster::is_possible(|line| println!("{line}")).unwrap() {
        return;
    }
    let images = ["maglor-proxy", "maglor-app"].map(|program| {
        let binary = static_program(program, "dev").unwrap();
        Image::of_program(&format!("{program}:e2e"), &binary)
    });

    let before = interfaces();
    let started = Instant::now();
    let cluster = Cluster::start(Options {
        name: NAME.into(),
        delay: DELAY,
        say: |line| println!("{line}"),
        ..Options::default()
    });
    let mut cluster = cluster.unwrap();
    println!("the cluster is up after {:?}", started.elapsed());
    let folder = cluster.kubeconfig().parent().unwrap().to_owned();
    let inits: Vec<_> = cluster.nodes().iter().map(Machine::init).collect();

    nodes_are_as_far_apart_as_was_asked(&cluster);
    for image in &images {
        cluster.load(image).unwrap();
    }
    sidecars_carry_requests(&cluster);
    faults_come_and_go(&mut cluster);

    let stopping = Instant::now();
    cluster.stop().unwrap();
    println!("the cluster is down after {:?}", stopping.elapsed());
    assert!(!folder.exists(), "{}", folder.display());
    for init in inits {
        assert!(!Path::new(&format!("/proc/{init}")).exists());
    }
    nothing_is_left(NAME, &folder);
    assert_eq!(interfaces(), before, "interfaces of the host");
}

/// `up`, killing its remaining process, `down`.
#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn a_crash_leaves_nothing_that_down_does_not_remove() {
    if let Err(missing @ ClusterError::Missing { .. }) = Cluster::prepare(|_| {}) {
        println!("skipped: {missing}");
        return;
    }
    let cluster = |task: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_maglor-cluster"));
        let output = command.args([task, "--name", "crash"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let (up, said) = cluster("up");
    assert!(up, "{said}");
    let state = maglor_testkit::cluster::state::read("crash").unwrap();
    let folder = state.kubeconfig.parent().unwrap().to_owned();
    let holder = fs::read_to_string(folder.with_extension("lock")).unwrap();
    let kill = Command::new("kill").args(["-9", &holder]).status();
    assert!(kill.unwrap().success());
    // Every machine goes with it.
    let deadline = Instant::now() + LIMIT;
    for machine in &state.machines {
        while Path::new(&format!("/proc/{}", machine.init)).exists() {
            assert!(Instant::now() < deadline, "{machine:?} outlives its holder");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert!(!cluster("status").0, "there is no cluster any more");
    assert!(cluster("down").0);
    assert!(!folder.exists());
    nothing_is_left("crash", &folder);
    let (down, said) = cluster("down");
    assert!(!down && said.contains("no cluster named crash"), "{said}");
}

fn faults_come_and_go(cluster: &mut Cluster) {
    // The kubelet of a node that is cut off cannot be reached, and can be afterwards.
    let kubelet = SocketAddr::from(([10, 231, 0, 12], 10250));
    let brief = Duration::from_millis(500);
    let reached = |cluster: &Cluster| {
        let connected = cluster.in_network(move || TcpStream::connect_timeout(&kubelet, brief));
        connected.unwrap().is_ok()
    };
    cluster.cut("node-2").unwrap();
    assert!(!reached(cluster));
    cluster.mend("node-2").unwrap();
    assert!(reached(cluster));

    for program in ["kube-apiserver", "etcd"] {
        cluster.kill("control", program).unwrap();
        wait_until_ready(cluster, program, false);
        cluster.restart("control", program).unwrap();
        wait_until_ready(cluster, program, true);
    }
    let wrong = cluster.kill("node-1", "etcd").unwrap_err();
    assert_eq!(wrong.to_string(), "program: etcd of node-1 not found");
    assert_eq!(pods(cluster.kubectl(), "back").len(), 2, "nothing is lost");
}

fn wait_until_ready(cluster: &Cluster, program: &str, expected: bool) {
    let ready = ["get", "--raw", "/readyz", "--request-timeout=2s"];
    let deadline = Instant::now() + 6 * LIMIT;
    while cluster.kubectl().run(&ready).is_ok() != expected {
        assert!(
            Instant::now() < deadline,
            "{program}: ready is not {expected}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A connection takes a round trip.
fn nodes_are_as_far_apart_as_was_asked(cluster: &Cluster) {
    let ping = |from: usize, to: &str| {
        let mut command = cluster.nodes()[from].command("sh");
        // The kubelet's port; nothing else is on the host for sure.
        let line = format!("exec 3<>/dev/tcp/{to}/10250");
        command.args(["-c", &format!("bash -c '{line}'")]);
        let started = Instant::now();
        assert!(command.status().unwrap().success(), "{to}");
        started.elapsed()
    };
    let far = ping(0, "10.231.0.12").min(ping(1, "10.231.0.11"));
    assert!(far >= 2 * DELAY, "{far:?}");
    assert!(far < 20 * DELAY, "{far:?}");
}

fn sidecars_carry_requests(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(include_str!("e2e/sidecars.yaml")).unwrap();
    for deployment in ["deployment/back", "deployment/front"] {
        let wait = ["--namespace=shop", "--timeout=120s"];
        let rollout = [&["rollout", "status", deployment], &wait[..]].concat();
        if let Err(error) = kubectl.run(&rollout) {
            let pods = kubectl.run(&["describe", "pods", "--namespace=shop"]);
            panic!("{error}\n{}", pods.unwrap_or_default());
        }
    }
    let front = pods(kubectl, "front");
    let back = pods(kubectl, "back");
    assert_eq!((front.len(), back.len()), (1, 2));
    let nodes: BTreeSet<_> = back.iter().map(|pod| &pod.node).collect();
    assert_eq!(nodes.len(), 2, "a pod on each node: {nodes:?}");

    let address = front[0].address;
    knows(kubectl, &front[0].name, &back);
    let statuses = cluster.in_network(move || {
        let status = |_| get(address, 8080, "/api/v1").0;
        (0..REQUESTS).map(status).collect::<Vec<_>>()
    });
    let statuses = statuses.unwrap();
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");

    // Each went through the sidecar before the front, the one behind it, and one before a back.
    let count = |address, listener: &'static str| {
        let metrics = cluster.in_network(move || get(address, 9901, "/metrics").1);
        requests(&metrics.unwrap(), listener)
    };
    assert_eq!(count(address, "inbound"), REQUESTS);
    assert_eq!(count(address, "outbound"), REQUESTS);
    let shares: Vec<_> = back
        .iter()
        .map(|pod| count(pod.address, "inbound"))
        .collect();
    assert_eq!(shares.iter().sum::<usize>(), REQUESTS, "{shares:?}");
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
}

/// Waits until the sidecar of a pod has the addresses of the others by DNS.
fn knows(kubectl: &Kubectl, pod: &str, pods: &[Pod]) {
    let deadline = Instant::now() + 3 * LIMIT;
    let admin = kubectl.forward("shop", pod, 9901).unwrap();
    loop {
        let clusters = admin.get("/clusters").unwrap();
        let known = |pod: &Pod| clusters.contains(&pod.address.to_string());
        if pods.iter().all(known) {
            return;
        }
        assert!(Instant::now() < deadline, "{pods:?} are not in {clusters}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[derive(Debug)]
struct Pod {
    name: String,
    address: Ipv4Addr,
    node: String,
}

fn pods(kubectl: &Kubectl, app: &str) -> Vec<Pod> {
    let selector = format!("app={app}");
    let list = kubectl.json(&["get", "pods", "--namespace=shop", "--selector", &selector]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pod = |item: &Value| Pod {
        name: text(&item["metadata"]["name"]),
        address: text(&item["status"]["podIP"]).parse().unwrap(),
        node: text(&item["spec"]["nodeName"]),
    };
    let list = list.unwrap();
    list["items"].as_array().unwrap().iter().map(pod).collect()
}

/// Status and body of a response.
fn get(address: Ipv4Addr, port: u16, path: &str) -> (u16, String) {
    let address = SocketAddr::from((address, port));
    let mut stream = TcpStream::connect_timeout(&address, LIMIT).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let response = String::from_utf8_lossy(&response).into_owned();
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    (status, response)
}

/// How many requests of a listener succeeded.
fn requests(metrics: &str, listener: &str) -> usize {
    let lines = metrics.lines().filter(|line| {
        line.starts_with("maglor_http_requests_total{")
            && line.contains(&format!("listener=\"{listener}\""))
            && line.contains("status=\"2xx\"")
    });
    let counts = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    counts.sum::<f64>() as usize
}

fn interfaces() -> BTreeSet<String> {
    let names = fs::read_dir("/sys/class/net").unwrap();
    let names = names.map(|name| name.unwrap().file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

fn nothing_is_left(name: &str, folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let folder = folder.to_string_lossy();
    assert!(!mounts.contains(&*folder), "{mounts}");
    let groups = Command::new("find")
        .args(["/sys/fs/cgroup", "-name", &format!("maglor-cluster-{name}")])
        .output()
        .unwrap();
    let groups = String::from_utf8_lossy(&groups.stdout).into_owned();
    assert!(groups.is_empty(), "{groups}");
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let group = fs::read_to_string(process.path().join("cgroup")).unwrap_or_default();
        assert!(
            !group.contains(&format!("maglor-cluster-{name}/")),
            "{group}"
        );
        let command = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        assert!(!command.contains(&*folder), "{command}");
    }
}
