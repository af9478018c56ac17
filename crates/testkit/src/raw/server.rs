//! The scripted server.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::connection::RawConnection;

/// A server that follows a script, byte by byte, on each connection.
///
/// ```
/// use maglor_testkit::{RawHttp1, RawServer};
///
/// let server = RawServer::start(|connection, _| {
///     connection.expect("GET / HTTP/1.1\r\nhost: test\r\n\r\n")?;
///     connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
/// });
/// assert_eq!(RawHttp1::connect(server.address()).get("/").text(), "ok");
/// server.finish();
/// ```
#[derive(Debug)]
pub struct RawServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopping: AtomicBool,
    accepted: AtomicUsize,
    /// Connections whose script has not ended, by number.
    sockets: Mutex<HashMap<usize, TcpStream>>,
    failures: Mutex<Vec<String>>,
}

type Script = dyn Fn(&mut RawConnection, usize) -> io::Result<()> + Send + Sync;

impl RawServer {
    /// Runs `script` for each connection, in a separate thread; the second argument counts
    /// connections from zero. The connection is closed when the script returns.
    ///
    /// # Panics
    ///
    /// If there is no port to listen on.
    #[must_use]
    pub fn start(
        script: impl Fn(&mut RawConnection, usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port to listen on");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let shared = Arc::new(Shared::default());
        let script: Arc<Script> = Arc::new(script);
        let accepting = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.accept(&listener, &script))
        };
        Self {
            address,
            shared,
            accepting: Some(accepting),
        }
    }

    /// Starts a server that responds to each request head with the same bytes, and closes after
    /// `close_after` of them.
    ///
    /// Requests must not have a body.
    #[must_use]
    pub fn answering(bytes: impl Into<Vec<u8>>, close_after: usize) -> Self {
        let bytes = bytes.into();
        Self::start(move |connection, _| {
            for _ in 0..close_after {
                connection.read_head()?;
                connection.send(&bytes)?;
            }
            Ok(())
        })
    }

    /// Returns the server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(SeqCst)
    }

    /// Returns the errors of scripts so far.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        self.shared.failures.lock().unwrap().clone()
    }

    /// Stops, and checks that no script failed.
    ///
    /// Scripts that still wait are aborted and do not count. A server that is dropped instead stops
    /// without the check.
    ///
    /// # Panics
    ///
    /// If a script returned an error or panicked.
    #[track_caller]
    pub fn finish(self) {
        let failures = self.failures();
        drop(self);
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, SeqCst);
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            // It has no reason to panic, and a panic in drop would hide the test's own.
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener, script: &Arc<Script>) {
        let mut threads = Vec::new();
        for socket in listener.incoming().map_while(Result::ok) {
            if self.stopping.load(SeqCst) {
                break;
            }
            let number = self.accepted.fetch_add(1, SeqCst);
            if let Ok(handle) = socket.try_clone() {
                self.sockets.lock().unwrap().insert(number, handle);
            }
            let (shared, script) = (Arc::clone(self), Arc::clone(script));
            threads.push(thread::spawn(move || {
                shared.follow(&*script, socket, number);
            }));
        }
        for socket in self.sockets.lock().unwrap().values() {
            // Fails if the peer is gone, which is as good.
            let _ = socket.shutdown(Shutdown::Both);
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn follow(&self, script: &Script, socket: TcpStream, number: usize) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            script(&mut RawConnection::new(socket)?, number)
        }));
        // The last handle: the connection ends here, orderly or by reset.
        self.sockets.lock().unwrap().remove(&number);
        if self.stopping.load(SeqCst) {
            return;
        }
        let failure = match result {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("the script panicked")
                .to_owned(),
        };
        let failure = format!("connection {number}: {failure}");
        self.failures.lock().unwrap().push(failure);
    }
}
