//! One client connection, with one round trip at a time.

use std::net::SocketAddr;

use maglor_testkit::load_generator::Session;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Target;
use crate::error::{Doing, Error, Result};
use crate::http_codec::{h1, h2};
use crate::scenario::{Protocol, WAITING};

/// The number of connections that are opened concurrently.
const OPENING: usize = 32;

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    codec: Codec,
}

#[derive(Debug)]
enum Codec {
    H1 {
        request: Vec<u8>,
        body: usize,
    },
    H2 {
        client: h2::Client,
        filled: usize,
        out: Vec<u8>,
    },
}

/// Opens all connections of a run, and tests each with one round trip.
pub(super) async fn open_all(target: &Target) -> Result<Vec<Connection>> {
    let mut opening = JoinSet::new();
    let mut open = Vec::with_capacity(target.connections);
    for _ in 0..target.connections {
        if opening.len() == OPENING {
            open.push(joined(opening.join_next().await)?);
        }
        opening.spawn(Connection::open(target.clone()));
    }
    while !opening.is_empty() {
        open.push(joined(opening.join_next().await)?);
    }
    Ok(open)
}

type Joined = Option<std::result::Result<Result<Connection>, tokio::task::JoinError>>;

fn joined(result: Joined) -> Result<Connection> {
    match result {
        Some(Ok(connection)) => connection,
        other => Err(Error::protocol(format!(
            "a connection's task ended: {other:?}"
        ))),
    }
}

impl Connection {
    async fn open(target: Target) -> Result<Self> {
        let stream = connect(target.target).await?;
        let authority = target.target.to_string();
        let (buffer, codec) = match target.protocol {
            Protocol::H1 => {
                let request = h1::request(&authority, target.body);
                (
                    vec![0; target.body + 2048],
                    Codec::H1 {
                        request,
                        body: target.body,
                    },
                )
            }
            Protocol::H2c => {
                let client = h2::Client::new(&authority, target.body);
                let mut out = Vec::with_capacity(256);
                client.open(&mut out);
                (
                    vec![0; 2 * h2::MAX_FRAME],
                    Codec::H2 {
                        client,
                        filled: 0,
                        out,
                    },
                )
            }
        };
        let mut connection = Self {
            stream,
            buffer,
            codec,
        };
        connection.round_trip().await?;
        if target.waiting {
            connection.wait_from_now_on(&authority)?;
        }
        Ok(connection)
    }

    /// Requests answers that arrive after a second.
    fn wait_from_now_on(&mut self, authority: &str) -> Result<()> {
        match &mut self.codec {
            Codec::H1 { request, body } => {
                *request = h1::request_for(authority, &format!("/{body}{WAITING}"));
                Ok(())
            }
            Codec::H2 { .. } => Err(Error::protocol("requests wait over HTTP/1.1 only")),
        }
    }

    /// Sends one request and reads its whole response.
    pub(super) async fn round_trip(&mut self) -> Result<()> {
        let Self {
            stream,
            buffer,
            codec,
        } = self;
        match codec {
            Codec::H1 { request, body } => round_trip_h1(stream, buffer, request, *body).await,
            Codec::H2 {
                client,
                filled,
                out,
            } => {
                client.ask(out);
                round_trip_h2(stream, buffer, client, filled, out).await
            }
        }
    }
}

impl Session for Connection {
    type Error = Error;

    async fn round_trip(&mut self) -> Result<()> {
        self.round_trip().await
    }
}

async fn connect(target: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(target)
        .await
        .doing(format!("connect to {target}"))?;
    stream.set_nodelay(true).doing("set nodelay")?;
    Ok(stream)
}

async fn round_trip_h1(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    request: &[u8],
    body: usize,
) -> Result<()> {
    stream.write_all(request).await.doing("send")?;
    let (mut filled, mut whole) = (0, None);
    loop {
        filled += read_some(stream, &mut buffer[filled..]).await?;
        if whole.is_none()
            && let Some(head) = h1::head_len(&buffer[..filled])
        {
            whole = Some(h1::check_head(&buffer[..head], body)?);
        }
        match whole {
            Some(whole) if filled == whole => return Ok(()),
            Some(whole) if filled > whole => return Err(Error::protocol("more than the answer")),
            _ => {}
        }
    }
}

async fn round_trip_h2(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    client: &mut h2::Client,
    filled: &mut usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    loop {
        if !out.is_empty() {
            stream.write_all(out).await.doing("send")?;
            out.clear();
        }
        *filled += read_some(stream, &mut buffer[*filled..]).await?;
        let (mut used, mut done) = (0, false);
        while let Some((frame, length)) = h2::first_frame(&buffer[used..*filled])? {
            done |= client.take(&frame, out)?;
            used += length;
        }
        buffer.copy_within(used..*filled, 0);
        *filled -= used;
        if done {
            return Ok(());
        }
    }
}

async fn read_some(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<usize> {
    match stream.read(buffer).await.doing("receive")? {
        0 => Err(Error::protocol(
            "the connection was closed, or the answer is too long",
        )),
        read => Ok(read),
    }
}
