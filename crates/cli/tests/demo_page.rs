//! The demo with a controller: the page shows the calls, a killed replica, live requests, explanations, and what a
//! placement would move.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(40);
/// What is kept of a service.
const WHY: &str = "/api/v1/why?service=bookinfo/reviews";

struct Demo {
    child: Child,
    /// Address of the page.
    page: String,
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the demo; `None`, and a message, if the other programs are not built.
fn start(arguments: &[&str]) -> Option<Demo> {
    let program = Path::new(env!("CARGO_BIN_EXE_maglor-demo"));
    for other in ["maglor-proxy", "maglor-controller"] {
        if !program.with_file_name(other).is_file() {
            println!("skipped: there is no {other}; cargo build -p {other} makes it");
            return None;
        }
    }
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let page = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, rest) = line.split_once("Watch it at http://")?;
        Some(rest.split('/').next().unwrap().to_owned())
    });
    // The rest is read, so that the demo can print it.
    std::thread::spawn(move || lines.for_each(drop));
    let page = page.expect("the demo prints the address of the page");
    Some(Demo { child, page })
}

impl Demo {
    fn request(&self, path: &str, fields: &str) -> TcpStream {
        let mut tcp = TcpStream::connect(&self.page).unwrap();
        tcp.set_read_timeout(Some(LIMIT)).unwrap();
        write!(
            tcp,
            "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{fields}\r\n",
            self.page
        )
        .unwrap();
        tcp
    }

    fn get(&self, path: &str) -> Value {
        let mut response = String::new();
        self.request(path, "")
            .read_to_string(&mut response)
            .unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head} {body}");
        serde_json::from_str(body).unwrap()
    }

    /// Returns the lines of a stream.
    fn follow(&self, path: &str) -> impl Iterator<Item = String> + use<> {
        let stream = self.request(path, "accept: text/event-stream\r\n");
        BufReader::new(stream).lines().map(Result::unwrap)
    }

    #[track_caller]
    fn until(&self, what: &str, path: &str, is: impl Fn(&Value) -> bool) -> Duration {
        let begun = Instant::now();
        loop {
            let document = self.get(path);
            if is(&document) {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < LIMIT, "{what}: {document:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn the_page_shows_the_demo() {
    let arguments = [
        "--for",
        "60",
        "--rate",
        "60",
        "--fault",
        "reviews-3:kill@12",
    ];
    let Some(demo) = start(&arguments) else {
        return;
    };
    let edge = |graph: &Value, name: &str, field: &str| graph["edges"][name][field].as_f64();
    for (name, calls) in [
        ("bookinfo/productpage>bookinfo/details", 60.0),
        ("bookinfo/productpage>bookinfo/reviews", 60.0),
        ("bookinfo/reviews>bookinfo/ratings", 60.0),
    ] {
        let near = |rps: f64| (0.6..1.5).contains(&(rps / calls));
        demo.until(name, "/api/v1/mesh", |graph| {
            edge(graph, name, "rps").is_some_and(near)
        });
    }
    let graph = demo.get("/api/v1/mesh");
    let reviews = &graph["vertices"]["bookinfo/reviews"];
    assert_eq!(
        (&reviews["mtls"], &reviews["policy"]),
        (&true.into(), &"lor(choices=2)".into())
    );
    let page = "/api/v1/service?name=bookinfo/reviews";
    demo.until("each endpoint has its own calls", page, |service| {
        let endpoints = service["endpoints"].as_array().unwrap();
        endpoints.len() == 3 && endpoints.iter().all(|one| one["rps"].as_f64() > Some(5.0))
    });
    let service = demo.get(page);
    assert!(
        service["proxies"][0]["memory_bytes"].as_u64() > Some(500_000),
        "{service:#}"
    );
    let mut lines = demo.follow("/api/v1/tap?proxy=bookinfo/reviews-1");
    let request = lines.find_map(|line| {
        Some(line.strip_prefix("data: ")?.to_owned()).filter(|data| data.contains("\"status\":200"))
    });
    assert!(request.is_some_and(|data| data.contains("bookinfo/reviews-1")));
    let reviews = &graph["edges"]["bookinfo/productpage>bookinfo/reviews"];
    assert_eq!(reviews["mtls_share"], 1, "{reviews:#}");
    demo.until("each slow request is kept", WHY, |kept| {
        kept["stories"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    });
    let kept = demo.get(WHY);
    assert_eq!(
        kept["without_stories"],
        Value::Array(Vec::new()),
        "{kept:#}"
    );
    let id = kept["stories"][0]["id"].as_str().unwrap();
    let explained = demo.get(&format!("/api/v1/why?id={id}"));
    let story = &explained["stories"][0];
    assert!(explained["sentence"].is_string() && story["spent"].is_array());
    // The replicas are spread regardless of their calls, so another placement is better.
    let mut nodes = demo.follow("/api/v1/mesh?view=node");
    let proposed = nodes.find(|line| line.contains("a proposal: "));
    assert!(proposed.is_some_and(|line| line.contains("\"moves\":[{")));
    drop(nodes);
    demo.until("the killed replica is gone", page, |service| {
        service["endpoints"].as_array().unwrap().len() == 2
    });
    let receipts = demo.get("/api/v1/receipts");
    assert!(
        receipts["changes"]
            .as_array()
            .is_some_and(|changes| !changes.is_empty()),
        "{receipts:#}"
    );
}
