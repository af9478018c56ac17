use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use maglor_testkit::{pattern, seed};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, LocalSet};

use super::splice::Pipe;
use super::*;

mod ends;
mod flow;

const HOUR: Duration = Duration::from_secs(3600);
const MIB: u64 = 1024 * 1024;

/// Returns both ends of a connection over loopback.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connect = TcpStream::connect(listener.local_addr().unwrap());
    let (client, server) = tokio::join!(connect, listener.accept());
    (client.unwrap(), server.unwrap().0)
}

fn stream(tcp: TcpStream) -> Stream {
    with_prefix(tcp, b"")
}

fn with_prefix(tcp: TcpStream, prefix: &'static [u8]) -> Stream {
    Stream {
        io: Io::Tcp(tcp),
        prefix: Bytes::from_static(prefix),
        guard: None,
    }
}

/// A tunnel in a task, with its two peers.
struct Running {
    client: TcpStream,
    server: TcpStream,
    /// Bytes that the tunnel has reported as written: to the endpoint, to the client.
    counted: Rc<(Cell<u64>, Cell<u64>)>,
    task: JoinHandle<Outcome>,
}

impl Running {
    async fn new(idle_timeout: Duration) -> Self {
        let ((client, down), (up, server)) = (pair().await, pair().await);
        Self::over(client, stream(down), stream(up), server, idle_timeout)
    }

    fn over(
        client: TcpStream,
        down: Stream,
        up: Stream,
        server: TcpStream,
        idle_timeout: Duration,
    ) -> Self {
        let counted = Rc::new((Cell::new(0), Cell::new(0)));
        let counters = Rc::clone(&counted);
        let task = tokio::task::spawn_local(async move {
            let on_bytes = |to_up, to_down| {
                counters.0.set(counters.0.get() + to_up);
                counters.1.set(counters.1.get() + to_down);
            };
            tunnel(down, up, idle_timeout, on_bytes).await
        });
        Self {
            client,
            server,
            counted,
            task,
        }
    }

    fn counted(&self) -> (u64, u64) {
        (self.counted.0.get(), self.counted.1.get())
    }
}

fn outcome(bytes_to_upstream: u64, bytes_to_downstream: u64, end: End) -> Outcome {
    Outcome {
        bytes_to_upstream,
        bytes_to_downstream,
        end,
    }
}

/// Runs a test whose tasks need not be `Send`.
async fn local<T>(test: impl Future<Output = T>) -> T {
    LocalSet::new().run_until(test).await
}

/// Writes `length` bytes of the pattern in pieces of at most `piece`, then closes its side.
async fn send(to: &mut (impl AsyncWrite + Unpin), length: u64, piece: u64) -> io::Result<()> {
    let mut sent = 0;
    while sent < length {
        let bytes = pattern::piece(sent, piece.min(length - sent));
        to.write_all(&bytes).await?;
        sent += bytes.len() as u64;
    }
    to.shutdown().await
}

/// Reads the pattern to the end; returns the number of bytes.
async fn receive(from: &mut (impl AsyncRead + Unpin)) -> io::Result<u64> {
    let mut buf = vec![0; 64 * 1024];
    let mut received = 0;
    loop {
        let n = from.read(&mut buf).await?;
        if n == 0 {
            return Ok(received);
        }
        pattern::check(received, &buf[..n]);
        received += n as u64;
    }
}

/// Reads until the end; returns whether that is a reset.
async fn reset_seen(tcp: &mut TcpStream) -> bool {
    let mut buf = [0; 4096];
    loop {
        match tcp.read(&mut buf).await {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}
