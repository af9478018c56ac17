//! Clients in another network namespace that send requests until they are stopped, and lose none.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const ADDRESS: &str = "127.0.0.1:8080";
const PATIENCE: Duration = Duration::from_secs(20);

/// See the module's documentation.
pub(crate) struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answered: AtomicUsize,
}

impl Clients {
    /// Half of them keep their connections, half open one for each request.
    pub(crate) fn start(network: &File) -> Self {
        let shared = Arc::<Shared>::default();
        let client = |index: usize| {
            let (shared, network) = (Arc::clone(&shared), network.try_clone().unwrap());
            std::thread::spawn(move || {
                enter(&network)?;
                shared.send_requests(index.is_multiple_of(2))
            })
        };
        let threads = (0..4).map(client).collect();
        Self { shared, threads }
    }

    /// Waits for so many more answers, or for the first failure.
    pub(crate) fn wait_for(&self, more: usize) {
        let enough = self.shared.answered.load(SeqCst) + more;
        let ended = || self.threads.iter().any(JoinHandle::is_finished);
        while self.shared.answered.load(SeqCst) < enough && !ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of requests, all of which were answered.
    pub(crate) fn stop(self) -> usize {
        self.shared.stop.store(true, SeqCst);
        for thread in self.threads {
            thread.join().unwrap().expect("a request was lost");
        }
        self.shared.answered.load(SeqCst)
    }
}

impl Shared {
    fn send_requests(&self, keep: bool) -> io::Result<()> {
        let mut kept = None;
        while !self.stop.load(SeqCst) {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => connect()?,
            };
            let (closes, _) = round_trip(&mut connection, keep)?;
            kept = Some(connection).filter(|_| keep && !closes);
            self.answered.fetch_add(1, SeqCst);
        }
        Ok(())
    }
}

/// The body that the proxy of a network answers with.
pub(crate) fn body(network: &File) -> io::Result<String> {
    std::thread::scope(|scope| {
        let request = || {
            enter(network)?;
            Ok(round_trip(&mut connect()?, false)?.1)
        };
        scope.spawn(request).join().unwrap()
    })
}

/// Only the calling thread's network changes.
fn enter(network: &File) -> io::Result<()> {
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

fn connect() -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(ADDRESS)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

/// Sends a request; whether the connection ends after the response, and the body.
fn round_trip(connection: &mut BufReader<TcpStream>, keep: bool) -> io::Result<(bool, String)> {
    let close = if keep { "" } else { "connection: close\r\n" };
    let request = format!("GET / HTTP/1.1\r\nhost: test\r\n{close}\r\n");
    connection.get_mut().write_all(request.as_bytes())?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if connection.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let head = head.to_ascii_lowercase();
    if !head.starts_with("http/1.1 200 ") {
        return Err(io::Error::other(head));
    }
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    connection.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok((head.contains("connection: close"), body))
}
