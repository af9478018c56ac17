//! The floods: each repeats an operation that costs its sender little, on connections that are reopened
//! whenever they are closed.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustls::ClientConfig;
use socket2::{Domain, Socket, Type};

use crate::clients::{self, Member};

/// Addresses for the floods.
pub(crate) struct Target {
    pub(crate) web: SocketAddr,
    pub(crate) mesh: SocketAddr,
    pub(crate) member: Arc<ClientConfig>,
}

/// Behaviour of a flood's connection until it is closed, or the flood ends.
type Repeat = fn(&Target, &AtomicBool) -> io::Result<()>;

pub(crate) struct Flood {
    pub(crate) name: &'static str,
    repeat: Repeat,
}

pub(crate) const FLOODS: [Flood; 15] = [
    flood("h2-settings", |target, stop| {
        h2(target, stop, &[], |_| frame(4, 0, 0, &[]))
    }),
    flood("h2-ping", |target, stop| {
        h2(target, stop, &[], |_| frame(6, 0, 0, &[0; 8]))
    }),
    flood("h2-priority", |target, stop| {
        h2(target, stop, &[], |n| {
            frame(2, 0, 2 * (n % 1000) + 1, &[0, 0, 0, 0, 9])
        })
    }),
    flood("h2-window-update", |target, stop| {
        h2(target, stop, &[], |_| frame(8, 0, 0, &[0, 0, 0, 1]))
    }),
    flood("h2-unknown", |target, stop| {
        h2(target, stop, &[], |_| frame(200, 0, 0, &[]))
    }),
    flood("h2-empty-data", |target, stop| {
        h2(target, stop, &frame(1, 4, 1, &POST), |_| {
            frame(0, 0, 1, &[])
        })
    }),
    flood("h2-continuation", |target, stop| {
        h2(target, stop, &frame(1, 0, 1, &GET), |_| frame(9, 0, 1, &[]))
    }),
    flood("h2-rapid-reset", |target, stop| {
        h2(target, stop, &[], |n| {
            [
                frame(1, 5, 2 * n + 1, &GET),
                frame(3, 0, 2 * n + 1, &[0, 0, 0, 8]),
            ]
            .concat()
        })
    }),
    flood("mesh-head-reset", |target, stop| {
        mesh(target, stop, |n| {
            let head = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
            [
                member_frame(1, 1, n, head),
                member_frame(3, 0, n, &[0, 0, 0, 1]),
            ]
            .concat()
        })
    }),
    flood("mesh-unknown", |target, stop| {
        mesh(target, stop, |_| member_frame(99, 0, 0, &[]))
    }),
    flood("mesh-window", |target, stop| {
        mesh(target, stop, |_| member_frame(4, 0, 0, &[0, 0, 0, 1]))
    }),
    flood("h1-pipeline", |target, stop| {
        let requests = b"GET /status/204 HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100);
        let mut client = connect(target.web)?;
        pump(&mut client, stop, |_| requests.clone())
    }),
    flood("h1-refused", |target, stop| {
        let requests = b"GET / HTTP/1.1\r\nhost: absent\r\n\r\n".repeat(100);
        let mut client = connect(target.web)?;
        pump(&mut client, stop, |_| requests.clone())
    }),
    flood("handshakes", |target, _| {
        let mut client = connect(target.mesh)?;
        client.write_all(&clients::hello(&target.member))?;
        // The response is expensive: the flood waits for it, and does not use it.
        client.read_exact(&mut [0; 1])
    }),
    flood("connections", |target, _| {
        connect_from_elsewhere(target.web).map(drop)
    }),
];

/// The same threads, which use the same processors and send nothing: the baseline for the floods.
pub(crate) const NOTHING: Flood = flood("nothing", |_, stop| {
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    Ok(())
});

const fn flood(name: &'static str, repeat: Repeat) -> Flood {
    Flood { name, repeat }
}

/// A flood that continues until it is dropped.
pub(crate) struct Running(Arc<AtomicBool>, Vec<thread::JoinHandle<u64>>);

impl Running {
    /// Starts this many connections at once.
    pub(crate) fn start(flood: &Flood, connections: usize, target: &Arc<Target>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let repeat = flood.repeat;
        let one = |_| {
            let (stop, target) = (Arc::clone(&stop), Arc::clone(target));
            thread::spawn(move || {
                run_last();
                let mut begun = 0;
                while !stop.load(Ordering::Relaxed) {
                    begun += 1;
                    // Closed by the proxy, as it should be, or refused: the next one.
                    if repeat(&target, &stop).is_err() {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                begun
            })
        };
        let threads = (0..connections).map(one).collect();
        Self(stop, threads)
    }

    /// Ends it; returns how many connections were begun.
    pub(crate) fn stop(mut self) -> u64 {
        self.0.store(true, Ordering::Relaxed);
        let threads = self.1.drain(..);
        threads.map(|thread| thread.join().unwrap()).sum()
    }
}

/// Schedules the calling thread, and those that it starts, only when no other thread is ready: the sender of a
/// flood has no claim to the processor that the server and the measured client need. A lower priority is not
/// enough: a thread that wakes waits for the rest of another's slice, 3 ms each time.
pub(crate) fn run_last() {
    schedule("--idle", "0");
}

/// Schedules the calling thread, and those that it starts, as soon as they wake. Without that a thread
/// sometimes waits for the next tick of the clock (4 ms) although only floods run on its processor.
pub(crate) fn run_first() {
    schedule("--fifo", "1");
}

fn schedule(policy: &str, priority: &str) {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let done = Command::new("chrt")
        .args([policy, "--pid", priority, &thread])
        .status();
    assert!(
        done.is_ok_and(|status| status.success()),
        "chrt(1) and the right to use it are needed"
    );
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    clients::connect(address, None)
}

/// Connects from one of many addresses. One address has 28 232 ports for this listener, each of which is
/// unavailable for a while after its connection: a flood from it searches for a free one most of the time, in a
/// kernel that runs nothing else on its processor meanwhile.
fn connect_from_elsewhere(address: SocketAddr) -> io::Result<TcpStream> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let [.., high, low] = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 1, high, low], 0)).into())?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}

/// Sends pieces until the peer closes the connection, and reads all responses so that it is never a slow
/// reader.
fn pump(
    client: &mut TcpStream,
    stop: &AtomicBool,
    mut next: impl FnMut(u32) -> Vec<u8>,
) -> io::Result<()> {
    client.set_nonblocking(true)?;
    let (mut number, mut waiting, mut sink) = (0, Vec::new(), [0; 65_536]);
    while !stop.load(Ordering::Relaxed) {
        if waiting.is_empty() {
            waiting = next(number);
            number += 1;
        }
        let written = client.write(&waiting);
        match client.read(&mut sink) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        match written {
            Ok(written) => drop(waiting.drain(..written)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

const POST: [u8; 12] = [
    0x83, 0x86, 0x44, 5, b'/', b'h', b'a', b'n', b'g', 0x41, 1, b'a',
];
const GET: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 1, b'a'];

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn h2(
    target: &Target,
    stop: &AtomicBool,
    first: &[u8],
    next: impl Fn(u32) -> Vec<u8>,
) -> io::Result<()> {
    let mut client = connect(target.web)?;
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
    client.write_all(&frame(4, 0, 0, &[]))?;
    client.write_all(first)?;
    pump(&mut client, stop, |n| {
        (100 * n..100 * n + 100).flat_map(&next).collect()
    })
}

pub(crate) fn member_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn mesh(target: &Target, stop: &AtomicBool, next: impl Fn(u32) -> Vec<u8>) -> io::Result<()> {
    let mut member = Member::connect(target.mesh, &target.member)?;
    let mut number = 1;
    while !stop.load(Ordering::Relaxed) {
        let frames: Vec<u8> = (number..number + 100).flat_map(&next).collect();
        number += 100;
        member.try_send(&frames)?;
    }
    Ok(())
}
