//! The origin server: answers with fixed bodies, as cheaply as sockets allow, on one thread.
//!
//! `/N` answers with N bytes, `/N/waiting` with the same after a second, `/echo` with the request's head (to see what a proxy adds). The
//! HTTP/2 port exists for the direct baseline only and supports only the generator of this package.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, LocalSet};

use crate::error::{Doing, Error, Result};
use crate::http_codec::{h1, h2};
use crate::scenario::{BODIES, WAIT, WAITING};

/// The address on which the origin listens.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// HTTP/1.1 addresses.
    #[arg(long)]
    pub h1: Vec<SocketAddr>,
    /// HTTP/2 address (prior knowledge).
    #[arg(long)]
    pub h2: SocketAddr,
}

/// Serves until killed; prints `ready` once it listens.
///
/// # Errors
/// An address is already in use.
pub fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.doing("start the origin's runtime")?;
    LocalSet::new().block_on(&runtime, serve(options))
}

async fn serve(options: &Options) -> Result<()> {
    let bodies = Rc::new(Bodies::new());
    let mut accepting = JoinSet::new();
    for &address in &options.h1 {
        let listener = listen(address).await?;
        accepting.spawn_local(accept(listener, Rc::clone(&bodies), Speaks::H1));
    }
    let listener = listen(options.h2).await?;
    accepting.spawn_local(accept(listener, bodies, Speaks::H2));
    writeln!(io::stdout(), "ready").doing("report that the origin is ready")?;
    while accepting.join_next().await.is_some() {}
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<TcpListener> {
    let what = format!("listen on {address}");
    let socket = tokio::net::TcpSocket::new_v4().doing(what.as_str())?;
    socket.set_reuseaddr(true).doing(what.as_str())?;
    socket.bind(address).doing(what.as_str())?;
    socket.listen(8192).doing(what)
}

#[derive(Debug, Clone, Copy)]
enum Speaks {
    H1,
    H2,
}

async fn accept(listener: TcpListener, bodies: Rc<Bodies>, speaks: Speaks) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let bodies = Rc::clone(&bodies);
        tokio::task::spawn_local(async move {
            let served = match speaks {
                Speaks::H1 => serve_h1(stream, &bodies).await,
                Speaks::H2 => serve_h2(stream, &bodies).await,
            };
            if let Err(error @ Error::Protocol(_)) = served {
                let _ = writeln!(io::stderr(), "origin: {error}");
            }
        });
    }
}

async fn serve_h1(mut stream: TcpStream, bodies: &Bodies) -> Result<()> {
    stream.set_nodelay(true).doing("set nodelay")?;
    let mut buffer = vec![0; 4096];
    let mut filled = 0;
    loop {
        let read = stream
            .read(&mut buffer[filled..])
            .await
            .doing("read a request")?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        while let Some(head) = h1::head_len(&buffer[..filled]) {
            answer_h1(&mut stream, &buffer[..head], bodies).await?;
            buffer.copy_within(head..filled, 0);
            filled -= head;
        }
    }
}

async fn answer_h1(stream: &mut TcpStream, head: &[u8], bodies: &Bodies) -> Result<()> {
    let mut path = h1::path(head)?;
    if let Some(plain) = path.strip_suffix(WAITING) {
        path = plain;
        tokio::time::sleep(WAIT).await;
    }
    let echo;
    let answer = if let Some(answer) = bodies.whole.get(path) {
        answer
    } else if path == "/echo" {
        echo = h1::response(head);
        &echo
    } else {
        return Err(Error::protocol(format!("path {path}")));
    };
    stream.write_all(answer).await.doing("write an answer")
}

async fn serve_h2(mut stream: TcpStream, bodies: &Bodies) -> Result<()> {
    stream.set_nodelay(true).doing("set nodelay")?;
    let mut preface = [0; h2::PREFACE.len()];
    stream
        .read_exact(&mut preface)
        .await
        .doing("read the preface")?;
    let server = h2::Server;
    let mut out = Vec::new();
    server.open(&mut out);
    let mut buffer = vec![0; 2 * h2::MAX_FRAME];
    let mut filled = 0;
    loop {
        let mut used = 0;
        while let Some((frame, length)) = h2::first_frame(&buffer[used..filled])? {
            server.take(&frame, &mut out, |path| {
                bodies.plain.get(path).map(Vec::as_slice)
            })?;
            used += length;
        }
        buffer.copy_within(used..filled, 0);
        filled -= used;
        stream.write_all(&out).await.doing("write frames")?;
        out.clear();
        let read = stream
            .read(&mut buffer[filled..])
            .await
            .doing("read frames")?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
    }
}

/// The bodies by path, as plain bytes and as whole HTTP/1.1 answers.
#[derive(Debug)]
struct Bodies {
    plain: HashMap<String, Vec<u8>>,
    whole: HashMap<String, Vec<u8>>,
}

impl Bodies {
    fn new() -> Self {
        let plain: HashMap<_, _> = BODIES
            .iter()
            .map(|&size| (format!("/{size}"), vec![b'm'; size]))
            .collect();
        let whole = plain
            .iter()
            .map(|(path, body)| (path.clone(), h1::response(body)))
            .collect();
        Self { plain, whole }
    }
}
