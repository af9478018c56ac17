//! The emulated application as a separate process: its calls, durations and counts.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use maglor_testkit::app::{Counts, Deployment, Placed, Service, WorkModel};
use maglor_testkit::{RawHttp1, TIMEOUT, eventually};
use tempfile::TempDir;

struct App {
    child: Child,
    control: SocketAddr,
    _files: TempDir,
}

impl App {
    fn start(model: &WorkModel) -> Self {
        let instance = |host: &str| Placed {
            host: host.to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            outbound: None,
            remote: false,
        };
        let hosts = model.hosts();
        let instances = hosts.iter();
        let instances = instances.flat_map(|(host, count)| (0..*count).map(|_| instance(host)));
        let deployment = Deployment {
            instances: instances.collect(),
        };
        let (files, mut command) = command(
            &serde_json::to_string(model).unwrap(),
            &serde_json::to_string(&deployment).unwrap(),
        );
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let control = line.trim().strip_prefix("control on ").unwrap();
        let control = control.parse().unwrap();
        let mut ready = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Self {
            child,
            control,
            _files: files,
        }
    }

    fn counts(&self) -> Vec<Counts> {
        let answer = RawHttp1::connect(self.control).get("/counts");
        serde_json::from_slice(&answer.body).unwrap()
    }

    fn of(&self, host: &str) -> Counts {
        let mut counts = self.counts().into_iter();
        counts.find(|counts| counts.host == host).unwrap()
    }

    /// One request; its status and how long it took.
    fn get(&self, host: &str) -> (u16, Duration) {
        let mut client = RawHttp1::connect(self.of(host).listen);
        let began = Instant::now();
        let answer = client.get("/api/v1");
        (answer.status, began.elapsed())
    }

    fn fault(&self, json: &str) -> u16 {
        let mut client = RawHttp1::connect(self.control);
        let length = json.len();
        let request =
            format!("PUT /faults HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{json}");
        client.send(request.as_bytes());
        client.response().status
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(model: &str, deployment: &str) -> (TempDir, Command) {
    let files = TempDir::with_prefix("maglor-app-").unwrap();
    let write = |name: &str, text: &str| {
        let file = files.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_maglor-app"));
    command
        .arg("--workmodel")
        .arg(write("workmodel.json", model));
    command
        .arg("--deployment")
        .arg(write("deployment.json", deployment));
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    (files, command)
}

/// A service that always needs `ms` milliseconds.
fn constant(ms: u64) -> Service {
    let mut service = Service::exponential(1, ms as f64 / 1000.0);
    let queue = service.internal_service.queue.as_mut().unwrap();
    "deterministic".clone_into(&mut queue.distribution);
    service
}

fn model(services: &[(&str, Service)]) -> WorkModel {
    let own = services.iter();
    WorkModel::new(own.map(|(name, service)| ((*name).to_owned(), service.clone())))
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn groups_are_called_together_and_their_services_one_after_the_other() {
    let app = App::start(&model(&[
        ("hub", constant(10).calling(["a", "b__2"]).calling(["c"])),
        ("a", constant(20)),
        ("b", constant(30)),
        ("c", constant(40)),
    ]));
    let (status, took) = app.get("hub");
    assert_eq!(status, 200);
    // 10 + max(20 + 30, 40): one after another it would be 100.
    assert!(took >= ms(60), "{took:?}");
    let answer = RawHttp1::connect(app.of("hub").listen).get("/api/v1");
    assert_eq!(answer.header("x-exact-us"), Some("60000"));
    for host in ["hub", "a", "b", "c"] {
        let counts = app.of(host);
        assert_eq!((counts.arrived, counts.succeeded), (2, 2), "{host}");
        assert_eq!((counts.in_flight, counts.queued), (0, 0), "{host}");
    }
}

#[test]
fn one_worker_takes_one_request_at_a_time() {
    let app = App::start(&model(&[("a", constant(30))]));
    let listen = app.of("a").listen;
    let clients: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(move || RawHttp1::connect(listen).get("/api/v1").status))
        .collect();
    eventually(TIMEOUT, "all are there", || app.of("a").arrived == 4);
    for client in clients {
        assert_eq!(client.join().unwrap(), 200);
    }
    let counts = app.of("a");
    assert_eq!(counts.work_us, 4 * 30_000);
    assert!(counts.sojourn_us >= counts.work_us, "{counts:?}");
    assert!((1..=4).contains(&counts.queued_peak), "{counts:?}");
}

#[test]
fn faults_are_done_on_demand_and_seen_by_callers() {
    let app = App::start(&model(&[
        ("a", constant(1).calling(["b"])),
        ("b", constant(1)),
    ]));
    assert_eq!(app.get("a").0, 200);
    let b = app
        .counts()
        .iter()
        .position(|counts| counts.host == "b")
        .unwrap();
    let order = format!(
        "{{\"instance\": {b}, \"fault\": {{\"status_share\": 1, \"status\": 503, \
         \"delay_share\": 1, \"delay_ms\": 30}}}}"
    );
    assert_eq!(app.fault(&order), 204);
    let (status, took) = app.get("b");
    assert_eq!(status, 503);
    assert!(took >= ms(30), "{took:?}");
    assert_eq!(app.get("a").0, 500);
    assert_eq!(app.fault("{\"fault\": {\"status_share\": 7}}"), 400);
    assert_eq!(app.fault("{\"fault\": {}}"), 204);
    assert_eq!(app.get("a").0, 200);
    let forget = "DELETE /counts HTTP/1.1\r\nhost: x\r\n\r\n";
    assert_eq!(RawHttp1::connect(app.control).request(forget).status, 204);
    assert_eq!(app.of("a").arrived, 0);
}

#[test]
fn services_of_one_host_differ_by_path_and_other_paths_are_not_there() {
    let app = App::start(&model(&[
        ("x", constant(1).at("host", "/x")),
        ("y", constant(40).at("host", "/y")),
    ]));
    let listen = app.of("host").listen;
    let mut client = RawHttp1::connect(listen);
    assert_eq!(client.get("/x").status, 200);
    let began = Instant::now();
    assert_eq!(client.get("/y").status, 200);
    assert!(began.elapsed() >= ms(40));
    assert_eq!(client.get("/z").status, 404);
}

#[test]
fn http2_with_prior_knowledge_is_served_on_the_same_port() {
    let app = App::start(&model(&[("a", constant(1))]));
    let listen = app.of("a").listen;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let status = runtime.block_on(async move {
        let stream = tokio::net::TcpStream::connect(listen).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io)
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = http::Request::get(format!("http://{listen}/api/v1"))
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .unwrap();
        sender.send_request(request).await.unwrap().status()
    });
    assert_eq!(status, 200);
}

#[test]
fn bad_files_are_refused_in_one_line() {
    let good = serde_json::to_string(&model(&[("a", constant(1))])).unwrap();
    for (workmodel, deployment, needle) in [
        (
            "{\"a\":\n{\"replicas\": 0}}",
            "{}",
            "workmodel.json: replicas: 0",
        ),
        (
            &*good,
            "{\"instances\": []}",
            "deployment.json: instances: there is none of `a`",
        ),
        (&*good, "{\"instances\": 1}", "line 1"),
    ] {
        let (_files, mut command) = command(workmodel, deployment);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(needle), "{text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    }
}
