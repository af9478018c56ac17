//! Attacks of a pod without an identity on the controller's ports.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use maglor_testkit::cluster::Cluster;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Stream};

/// Connections that stay silent, of each attacker.
const SILENT: usize = 100;
/// Attackers of one port.
const ATTACKERS: usize = 4;
/// Requests that do not end, and the bytes of each that have come.
const UNFINISHED: usize = 32;
const BODY: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(2);
/// Lower than everything else on this machine, to measure the controller, not the scheduling of processors.
const PRIORITY: i32 = 10;

/// An attack that continues until it is dropped.
pub(crate) struct Attack {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicU64>,
}

/// The attack on a port, in addition to silent connections.
#[derive(Clone)]
pub(crate) enum Way {
    /// The beginning of handshakes: the server signs, and the client goes.
    Hellos(Arc<ClientConfig>),
    /// Whole handshakes, after each of which a request begins that does not end.
    Requests(Arc<ClientConfig>),
    /// `GET /metrics`, the costliest public page, in plain text.
    Metrics,
}

impl Attack {
    /// Attacks a port from the network of a pod.
    pub(crate) fn start(cluster: &Cluster, to: SocketAddr, way: &Way) -> Self {
        let (stop, made) = (Arc::default(), Arc::default());
        for _ in 0..ATTACKERS {
            let (way, stop, made) = (way.clone(), Arc::clone(&stop), Arc::clone(&made));
            let spawned = cluster.in_pod("attacker", "attacker", move || {
                // It inherits the network of this thread.
                thread::spawn(move || attack(to, &way, &stop, &made));
            });
            spawned.unwrap();
        }
        Self { stop, made }
    }

    /// Rounds so far: a silent connection and an attack each.
    pub(crate) fn rounds(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn attack(to: SocketAddr, way: &Way, stop: &AtomicBool, made: &AtomicU64) {
    // Of this thread alone on Linux; without it the attack is the stronger one.
    let _ = rustix::process::setpriority_process(None, PRIORITY);
    let (mut silent, mut unfinished) = (VecDeque::new(), VecDeque::new());
    while !stop.load(Ordering::Relaxed) {
        silent.extend(connect(to));
        if silent.len() > SILENT {
            silent.pop_front();
        }
        match way {
            Way::Hellos(config) => _ = hello(to, config),
            Way::Requests(config) => {
                unfinished.extend(unfinished_request(to, config));
                if unfinished.len() > UNFINISHED {
                    unfinished.pop_front();
                }
                let _ = hello(to, config);
            }
            Way::Metrics => _ = metrics(to),
        }
        made.fetch_add(1, Ordering::Relaxed);
    }
}

fn connect(to: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
}

fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("maglor-controller.maglor.svc").unwrap();
    ClientConnection::new(Arc::clone(config), name).unwrap()
}

fn hello(to: SocketAddr, config: &Arc<ClientConfig>) -> Option<()> {
    let mut hello = Vec::new();
    session(config).write_tls(&mut hello).ok()?;
    let mut stream = connect(to)?;
    stream.write_all(&hello).ok()?;
    // The server has signed by then.
    let read = stream.read(&mut [0; 4096]).ok()?;
    (read > 0).then_some(())
}

/// A connection with a request whose last byte does not come.
fn unfinished_request(
    to: SocketAddr,
    config: &Arc<ClientConfig>,
) -> Option<(ClientConnection, TcpStream)> {
    let (mut session, mut stream) = (session(config), connect(to)?);
    let head = format!(
        "POST /validate HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        BODY + 1
    );
    let mut tls = Stream::new(&mut session, &mut stream);
    tls.write_all(head.as_bytes()).ok()?;
    tls.write_all(&vec![b'['; BODY]).ok()?;
    Some((session, stream))
}

fn metrics(to: SocketAddr) -> Option<()> {
    let mut stream = connect(to)?;
    let request = "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    stream.read_to_end(&mut Vec::new()).ok()?;
    Some(())
}
