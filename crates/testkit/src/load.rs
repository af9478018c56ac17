//! Clients that repeat requests, and count failures.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::{RawHttp1, RawResponse, TIMEOUT, eventually};

/// Threads that send requests until they are stopped, or the server is gone.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    answered: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Load {
    /// Starts clients that each have one request in progress at a time, over kept-alive
    /// connections.
    #[must_use]
    pub fn start(address: SocketAddr, clients: usize, request: &str) -> Self {
        let shared = Arc::<Shared>::default();
        let client = |_| {
            let (shared, request) = (Arc::clone(&shared), request.to_owned());
            std::thread::spawn(move || shared.ask(address, &request))
        };
        let threads = (0..clients).map(client).collect();
        Self { shared, threads }
    }

    /// Returns the number of 200 responses.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(SeqCst)
    }

    /// Waits for this number of further responses, or for the first failure.
    ///
    /// # Panics
    ///
    /// If there are neither in time.
    #[track_caller]
    pub fn wait_for(&self, more: u64) {
        let enough = self.answered() + more;
        eventually(TIMEOUT, "requests are answered", || {
            self.answered() >= enough || !self.failures().is_empty()
        });
    }

    /// Returns the errors so far.
    ///
    /// # Panics
    ///
    /// If a client has panicked.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        self.shared.failures.lock().unwrap().clone()
    }

    /// Waits until the clients have ended by themselves, and checks that there was no failure;
    /// returns the number of responses.
    ///
    /// # Panics
    ///
    /// If there was a failure.
    #[track_caller]
    pub fn finish(self) -> u64 {
        for thread in self.threads {
            thread.join().unwrap();
        }
        let failures = self.shared.failures.lock().unwrap();
        assert!(
            failures.is_empty(),
            "{} failures and {} answers; first: {}",
            failures.len(),
            self.shared.answered.load(SeqCst),
            failures[0]
        );
        self.shared.answered.load(SeqCst)
    }

    /// Stops the clients after their present requests, and checks that there was no failure;
    /// returns the number of responses.
    ///
    /// # Panics
    ///
    /// If there was a failure.
    #[track_caller]
    pub fn stop(self) -> u64 {
        self.shared.stop.store(true, SeqCst);
        self.finish()
    }
}

impl Shared {
    fn ask(&self, address: SocketAddr, request: &str) {
        while !self.stop.load(SeqCst) {
            let Ok(socket) = std::net::TcpStream::connect(address) else {
                // Connection refused: the proxy has announced its end.
                return;
            };
            drop(socket.set_nodelay(true));
            let Some(mut client) = RawHttp1::try_over(socket) else {
                return;
            };
            let mut first = true;
            while !self.stop.load(SeqCst) {
                match self.one(&mut client, request) {
                    Ok(response) if response.status == 200 => {
                        self.answered.fetch_add(1, SeqCst);
                        if response.header("connection") == Some("close") {
                            break;
                        }
                    }
                    Ok(response) => self.fail(format!("status {}", response.status)),
                    // Still in the backlog when the listening socket was closed.
                    Err(_) if first => return,
                    Err(error) => {
                        self.fail(error);
                        break;
                    }
                }
                first = false;
            }
        }
    }

    fn one(&self, client: &mut RawHttp1, request: &str) -> Result<RawResponse, String> {
        client
            .connection()
            .send(request)
            .map_err(|e| format!("cannot send: {e}"))?;
        client
            .try_response("GET")
            .map_err(|e| format!("no response: {e}"))
    }

    fn fail(&self, what: String) {
        self.failures.lock().unwrap().push(what);
    }
}
