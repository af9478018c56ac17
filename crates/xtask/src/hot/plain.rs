//! A proxy without a mesh that serves HTTP/1.1, one request at a time.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nhost: plain\r\nuser-agent: hot-functions\r\naccept: */*\r\n\r\n";
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: text/plain\r\n\r\nok";
/// The number of requests after which connections are open and every cell has its value.
const WARM: usize = 100;
const COUNTED: usize = 400;
/// The time between requests, in which the proxy sleeps, as under most loads.
const APART: Duration = Duration::from_millis(5);

/// Starts `proxy` in front of a server, and calls `count` when it is warm.
pub(super) fn serve(
    proxy: &Path,
    within: Duration,
    count: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let upstream = server.local_addr()?;
    thread::spawn(move || answer_all(&server));
    // No other program takes a port that was free a moment ago.
    let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut proxy = Command::new(proxy)
        .args(["--listen", &listen.to_string()])
        .args(["--upstream", &upstream.to_string()])
        .args(["--admin", "127.0.0.1:0", "--log-level", "error"])
        .stdout(Stdio::null())
        .spawn()?;
    let served = ask(&mut proxy, listen, within, count);
    let _ = proxy.kill();
    proxy.wait()?;
    served
}

fn ask(
    proxy: &mut Child,
    listen: SocketAddr,
    within: Duration,
    count: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let mut client = connect(proxy, listen, within)?;
    client.set_nodelay(true)?;
    client.set_read_timeout(Some(within))?;
    (0..WARM).try_for_each(|_| round_trip(&mut client))?;
    count()?;
    (0..COUNTED).try_for_each(|_| {
        thread::sleep(APART);
        round_trip(&mut client)
    })
}

/// Connects once it listens.
fn connect(proxy: &mut Child, listen: SocketAddr, within: Duration) -> io::Result<TcpStream> {
    let begin = Instant::now();
    loop {
        match TcpStream::connect(listen) {
            Ok(client) => return Ok(client),
            Err(error) if begin.elapsed() > within => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
        if let Some(status) = proxy.try_wait()? {
            return Err(io::Error::other(format!("the proxy ended early: {status}")));
        }
    }
}

fn round_trip(client: &mut TcpStream) -> io::Result<()> {
    client.write_all(REQUEST)?;
    let (mut response, mut some) = (Vec::new(), [0; 4096]);
    while !response.ends_with(b"\r\n\r\nok") {
        match client.read(&mut some)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => response.extend_from_slice(&some[..n]),
        }
    }
    Ok(())
}

/// Responds to any request: a head fits into one segment.
fn answer_all(server: &TcpListener) {
    for connection in server.incoming().flatten() {
        thread::spawn(move || answer(connection));
    }
}

fn answer(mut connection: TcpStream) -> io::Result<()> {
    let mut some = [0; 4096];
    while connection.read(&mut some)? > 0 {
        connection.write_all(RESPONSE)?;
    }
    Ok(())
}
