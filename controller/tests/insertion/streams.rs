//! Calls and streams of gRPC to a Service from a node, by grpc-go: unary calls and short streams one after another,
//! over channels that are kept and over new ones; and long streams, of which some begin and some end at any time.
//!
//! Commands and reports are lines on their standard input and output.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::Machine;
use serde_json::Value;

/// The duration of a long stream: less than the drain time of proxies.
const LONG: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(60);

/// Clients that run.
pub(crate) struct Streams {
    child: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Streams {
    pub(crate) fn start(program: &Path, node: &Machine, address: Ipv4Addr) -> Self {
        let network = format!("--net=/proc/{}/ns/net", node.init());
        let address = SocketAddr::from((address, 70));
        let mut child = Command::new("nsenter")
            .arg(network)
            .arg(program)
            .arg(format!("-call={address}"))
            .arg(format!("-long={}s", LONG.as_secs()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pipes = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        let streams = Self {
            child,
            pipes: Mutex::new(pipes),
        };
        let reported = streams.until("calls are answered", "report", |reported| {
            reported["answered"].as_u64() > Some(0)
        });
        assert_eq!(reported["failed"], serde_json::json!({}), "{reported}");
        streams
    }

    /// The results since the last call; fails if a stream has failed.
    pub(crate) fn phase(&self, name: &str) {
        let reported = self.report("report");
        println!("{name}: gRPC {reported}");
        assert_eq!(
            reported["failed"],
            serde_json::json!({}),
            "{name}: {reported}"
        );
        assert!(
            reported["answered"].as_u64() > Some(0),
            "{name}: {reported}"
        );
    }

    /// No long stream begins any more; waits for the end of those that have begun.
    pub(crate) fn finish(&self) {
        let mut ended = 0;
        self.until("the long streams have ended", "finish", |reported| {
            assert_eq!(reported["failed"], serde_json::json!({}), "{reported}");
            ended += reported["ended"].as_u64().unwrap();
            reported["open"] == 0
        });
        assert!(ended > 0);
    }

    fn until(&self, what: &str, word: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LIMIT;
        loop {
            let reported = self.report(word);
            if holds(&reported) {
                println!("{what}: {reported}");
                return reported;
            }
            assert!(Instant::now() < deadline, "{what}: {reported}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn report(&self, word: &str) -> Value {
        let mut pipes = self.pipes.lock().unwrap();
        let (input, output) = &mut *pipes;
        writeln!(input, "{word}").unwrap();
        let mut line = String::new();
        let read = output.read_line(&mut line).unwrap();
        assert!(read > 0, "the clients have ended");
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
