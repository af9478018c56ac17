//! A replacement of metrics-server: it queries the emulated services for the work they received, reports what that
//! is of CPU, and adds up what pods request.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use maglor_balance::Rng;
use maglor_testkit::cluster::{Cluster, Kubectl};
use serde_json::{Value, json};

use super::model::{CORE, Model, USERS};
use crate::support::round_trip::connect;

/// The interval between two lists of pods.
const LOOK: Duration = Duration::from_secs(5);
/// As often as metrics-server measures.
const PERIOD: Duration = Duration::from_secs(15);
/// The reported usage of a sidecar: its request.
const SIDECAR: (u64, u64) = (10, 16);
/// How far the memory of a replica is off its mean.
const MEMORY_VARIES: f64 = 0.02;

/// The requests at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requested {
    /// In thousandths of a core.
    pub(crate) cpu_millis: f64,
    /// In MiB.
    pub(crate) memory_mib: f64,
    pub(crate) replicas: f64,
    /// CPU, as reported.
    pub(crate) used_millis: f64,
}

/// A replica that was looked at.
#[derive(Clone, Copy, Debug)]
struct Known {
    at: Instant,
    work_us: u64,
    /// Work that came and was not done by then, in seconds.
    left: f64,
}

/// Measures until it is stopped.
pub(crate) struct Meter {
    stop: Arc<AtomicBool>,
    looks: Arc<Mutex<Vec<(Instant, Requested)>>>,
    /// Closed when its thread has ended.
    ended: mpsc::Receiver<()>,
}

impl Meter {
    pub(crate) fn start(cluster: &Cluster, model: &Model, seed: u64) -> Self {
        let (alive, ended) = mpsc::channel::<()>();
        let (stop, looks) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopped, seen) = (Arc::clone(&stop), Arc::clone(&looks));
        let (kubectl, model) = (cluster.kubectl().clone(), model.clone());
        let started = cluster.in_network(move || {
            // It inherits the network of this thread.
            std::thread::spawn(move || {
                let _alive = alive;
                measure(&kubectl, &model, seed, &stopped, &seen);
            });
        });
        started.unwrap();
        Self { stop, looks, ended }
    }

    /// The mean of the requests between two times.
    pub(crate) fn mean(&self, from: Instant, to: Instant) -> Requested {
        let looks = self.looks.lock().unwrap();
        let own: Vec<_> = looks
            .iter()
            .filter(|(at, _)| *at >= from && *at < to)
            .map(|(_, one)| one)
            .collect();
        assert!(!own.is_empty(), "nothing was measured");
        let mean = |of: fn(&Requested) -> f64| {
            own.iter().map(|one| of(one)).sum::<f64>() / own.len() as f64
        };
        Requested {
            cpu_millis: mean(|one| one.cpu_millis),
            memory_mib: mean(|one| one.memory_mib),
            replicas: mean(|one| one.replicas),
            used_millis: mean(|one| one.used_millis),
        }
    }

    /// The last look.
    pub(crate) fn now(&self) -> Requested {
        let looks = self.looks.lock().unwrap();
        looks.last().map(|(_, one)| *one).unwrap_or_default()
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        // Prints nothing; it ends with the thread.
        let _ = self.ended.recv();
    }
}

fn measure(
    kubectl: &Kubectl,
    model: &Model,
    seed: u64,
    stop: &AtomicBool,
    looks: &Mutex<Vec<(Instant, Requested)>>,
) {
    let (mut rng, mut known) = (Rng::seed(seed), BTreeMap::new());
    let (mut reported, mut used_millis) = (None::<Instant>, 0.0);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let pods = kubectl.json(&["get", "pods", "-n", "saving"]).unwrap();
        let pods: Vec<&Value> = pods["items"].as_array().into_iter().flatten().collect();
        if reported.is_none_or(|at| at.elapsed() >= PERIOD) {
            reported = Some(began);
            used_millis = report(kubectl, model, &pods, &mut known, &mut rng);
        }
        let mut look = requested(&pods);
        look.used_millis = used_millis;
        looks.lock().unwrap().push((began, look));
        std::thread::sleep(LOOK.saturating_sub(began.elapsed()));
    }
}

fn service_of(pod: &Value) -> &str {
    pod["metadata"]["labels"]["app"]
        .as_str()
        .unwrap_or_default()
}

/// The requests of all pods except the ingress; terminating pods count until they have terminated.
fn requested(pods: &[&Value]) -> Requested {
    let mut sum = Requested::default();
    for pod in pods.iter().filter(|pod| service_of(pod) != USERS) {
        let list = |name: &str| pod["spec"][name].as_array().into_iter().flatten();
        let beside = list("initContainers").filter(|one| one["restartPolicy"] == "Always");
        for one in list("containers").chain(beside) {
            let amount = |name: &str, unit: &str| -> f64 {
                let text = one["resources"]["requests"][name].as_str().unwrap_or("0");
                text.trim_end_matches(unit).parse().unwrap()
            };
            sum.cpu_millis += amount("cpu", "m");
            sum.memory_mib += amount("memory", "Mi");
        }
        sum.replicas += 1.0;
    }
    sum
}

/// Queries each replica for the work since the last query, and writes it in the format of metrics-server; what
/// all together used of CPU, without sidecars.
fn report(
    kubectl: &Kubectl,
    model: &Model,
    pods: &[&Value],
    known: &mut BTreeMap<String, Known>,
    rng: &mut Rng,
) -> f64 {
    let (mut items, mut sum) = (Vec::new(), 0.0);
    for pod in pods {
        let Some(service) = model.service(service_of(pod)) else {
            continue;
        };
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let address = pod["status"]["podIP"].as_str();
        let Some(work_us) = address.and_then(|ip| work(ip.parse().ok()?)) else {
            continue;
        };
        let at = Instant::now();
        let before = known.get(name).copied();
        let mut left = 0.0;
        if let Some(before) = before {
            let time = (at - before.at).as_secs_f64();
            let came = work_us.saturating_sub(before.work_us) as f64 / 1e6 + before.left;
            let done = came.min(time);
            left = came - done;
            let used = done / time * CORE as f64;
            sum += used;
            let memory = service.memory_mib * (1.0 + MEMORY_VARIES * (2.0 * rng.unit() - 1.0));
            items.push(metrics(pod, used, memory));
        }
        known.insert(name.to_owned(), Known { at, work_us, left });
    }
    if !items.is_empty() {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        // A pod may have terminated, with its metrics.
        if let Err(error) = kubectl.apply(&list.to_string()) {
            println!("not all metrics were taken: {error}");
        }
    }
    sum
}

/// They go with the pod.
fn metrics(pod: &Value, cpu_millis: f64, memory_mib: f64) -> Value {
    let meta = &pod["metadata"];
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]});
    let usage = |cpu: f64, memory: f64| json!({"cpu": format!("{:.0}u", cpu * 1e3), "memory": format!("{:.0}Ki", memory * 1024.0)});
    let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
    "metadata": {"name": meta["name"], "namespace": "saving", "labels": {"app": meta["labels"]["app"]},
        "ownerReferences": [owner]},
    "timestamp": now, "window": format!("{}s", PERIOD.as_secs()),
    "containers": [
        {"name": "app", "usage": usage(cpu_millis, memory_mib)},
        {"name": "maglor-proxy", "usage": usage(SIDECAR.0 as f64, SIDECAR.1 as f64)},
    ]})
}

/// The work that a replica has received, in microseconds.
fn work(address: Ipv4Addr) -> Option<u64> {
    let mut stream = connect(SocketAddr::from((address, 9100)))?;
    let request = "GET /counts HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    let (_, body) = response.split_once("\r\n\r\n")?;
    let counts: Value = serde_json::from_str(body).ok()?;
    let each = counts.as_array()?.iter();
    each.map(|one| one["work_us"].as_u64()).sum()
}
