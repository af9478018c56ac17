//! A name server that a test can stop and restart: every name is 127.0.0.1 (RFC 1035).

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

/// Seconds for which an answer holds.
const TTL: u8 = 1;
/// The interval in which a thread checks whether it must stop.
const POLL: Duration = Duration::from_millis(50);

static COUNT: AtomicU8 = AtomicU8::new(1);

/// Ends with the value.
pub(crate) struct NameServer {
    ends: Arc<AtomicBool>,
    /// Queries get no response, as from an unavailable host.
    silent: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    address: Ipv4Addr,
}

impl NameServer {
    /// At an address of its own, at the port of name servers, which only root may take.
    ///
    /// # Errors
    /// The port cannot be bound.
    pub(crate) fn start() -> io::Result<Self> {
        let process = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, process[2] | 1, process[3], COUNT.fetch_add(1, SeqCst));
        let socket = UdpSocket::bind((address, 53))?;
        socket.set_read_timeout(Some(POLL))?;
        let (ends, silent) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let flags = (Arc::clone(&ends), Arc::clone(&silent));
        let thread = std::thread::spawn(move || {
            let mut packet = [0; 512];
            while !flags.0.load(SeqCst) {
                let Ok((length, from)) = socket.recv_from(&mut packet) else {
                    continue;
                };
                let answer = answer(&packet[..length]).filter(|_| !flags.1.load(SeqCst));
                let _ = answer.map(|answer| socket.send_to(&answer, from));
            }
        });
        Ok(Self {
            ends,
            silent,
            thread: Some(thread),
            address,
        })
    }

    pub(crate) fn silence(&self, silent: bool) {
        self.silent.store(silent, SeqCst);
    }

    /// The environment of a process that uses it and the library of [`super::clock`].
    pub(crate) fn environment(&self, folder: &Path) -> (String, String) {
        let file = folder.join("resolv.conf");
        let text = format!(
            "nameserver {}\noptions timeout:1 attempts:2\n",
            self.address
        );
        std::fs::write(&file, text).unwrap();
        (
            "TEST_RESOLV_CONF".to_owned(),
            file.to_str().unwrap().to_owned(),
        )
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The response to a query of one question; nothing besides addresses of IPv4 exists.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let labels = query.get(12..)?;
    let mut end = 0;
    while *labels.get(end)? != 0 {
        end += usize::from(labels[end]) + 1;
    }
    let question = labels.get(..end + 5)?;
    let is_address = question[end + 1..end + 3] == [0, 1];
    // Response, authoritative; recursion as it was desired.
    let mut response = vec![query[0], query[1], 0x84 | (query[2] & 1), 0];
    response.extend([0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    response.extend(question);
    if is_address {
        response.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, TTL, 0, 4, 127, 0, 0, 1]);
    }
    Some(response)
}
