//! Requests to the admin ports of proxies. Errors are reasons for the viewer.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::dashboard::page::tokens::Denied;

/// Timeout to connect to a proxy, and to receive the head of its response.
const CONNECT: Duration = Duration::from_secs(3);
/// The same of a connection by a [`Connector`]: an API server and a kubelet on the way take longer.
const CONNECT_THROUGH: Duration = Duration::from_secs(10);
/// Timeout to receive the rest of a response.
const BODY: Duration = Duration::from_secs(10);
/// Maximum length of an error's text.
const LONGEST_ERROR: usize = 4096;

/// A byte stream to an admin port.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection that is being opened; an error is the reason for the viewer.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Box<dyn Io>, String>> + Send>>;

/// Opens connections to admin ports that have no address that can be reached from here.
pub trait Connector: Send + Sync {
    /// Opens a connection to the admin port of a proxy, at which it arrives over loopback.
    fn connect(&self, proxy: &str) -> Connecting;
}

/// The admin port of a proxy.
#[derive(Clone)]
pub enum AdminPort {
    /// It can be reached at an address.
    At(SocketAddr),
    /// A connector opens the connections.
    Through(Arc<dyn Connector>),
}

impl fmt::Debug for AdminPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => f.debug_tuple("At").field(address).finish(),
            Self::Through(_) => f.write_str("Through"),
        }
    }
}

/// Proxies with their admin ports, by name.
pub type Proxies = Vec<(String, AdminPort)>;

/// Proxies that are being determined.
pub type Permitted = Pin<Box<dyn Future<Output = Result<Proxies, Denied>> + Send>>;

/// Access to admin ports with the permissions of a viewer.
pub trait Permissions: Send + Sync {
    /// Returns the proxies to whose admin ports the user of a token may connect.
    fn proxies(&self, token: &str) -> Permitted;
}

/// Admin ports of the proxies of a mesh.
pub enum Taps {
    /// Ports that every viewer may use.
    Open(Proxies),
    /// Ports that viewers use with their own permissions, so they need a token, also over loopback.
    Personal(Arc<dyn Permissions>),
}

impl fmt::Debug for Taps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(proxies) => f.debug_tuple("Open").field(proxies).finish(),
            Self::Personal(_) => f.write_str("Personal"),
        }
    }
}

/// Requests a page of a proxy; returns the body of a response with status 200.
pub(crate) async fn get(proxy: &str, port: &AdminPort, path: &str) -> Result<Incoming, String> {
    let (limit, host) = match port {
        AdminPort::At(address) => (CONNECT, address.to_string()),
        AdminPort::Through(_) => (CONNECT_THROUGH, "localhost".to_owned()),
    };
    let connected = async {
        let io: Box<dyn Io> = match port {
            AdminPort::At(address) => {
                let connected = TcpStream::connect(*address).await;
                Box::new(connected.map_err(|error| error.to_string())?)
            }
            AdminPort::Through(connector) => connector.connect(proxy).await?,
        };
        let failed = |error: hyper::Error| error.to_string();
        let (mut client, connection) = http1::handshake(TokioIo::new(io)).await.map_err(failed)?;
        // It ends with the body of the response, or when the viewer drops it.
        tokio::spawn(connection);
        let request = Request::get(path)
            .header(header::HOST, host)
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        client.send_request(request).await.map_err(failed)
    };
    let response = match timeout(limit, connected).await {
        Ok(connected) => connected?,
        Err(_) => return Err(late(limit)),
    };
    if response.status() == StatusCode::OK {
        return Ok(response.into_body());
    }
    let status = response.status();
    let text = whole(response.into_body(), LONGEST_ERROR).await;
    let text = text.unwrap_or_default();
    Err(format!(
        "{status}: {}",
        String::from_utf8_lossy(&text).trim()
    ))
}

/// Receives a body of at most `limit` bytes.
pub(crate) async fn whole(body: Incoming, limit: usize) -> Result<Bytes, String> {
    let body = timeout(BODY, Limited::new(body, limit).collect()).await;
    let body = body.map_err(|_| late(BODY))?;
    Ok(body.map_err(|error| error.to_string())?.to_bytes())
}

fn late(limit: Duration) -> String {
    format!("no response within {} s", limit.as_secs())
}
