//! Requests to the admin ports of proxies. Errors are reasons for the viewer.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout to connect to a proxy, and to receive the head of its response.
const CONNECT: Duration = Duration::from_secs(3);
/// Maximum length of an error's text.
const LONGEST_ERROR: usize = 4096;

/// Requests a page; returns the body of a response with status 200.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<Incoming, String> {
    let connected = async {
        let socket = TcpStream::connect(address).await?;
        let (mut client, connection) = http1::handshake(TokioIo::new(socket))
            .await
            .map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        let request = Request::get(path)
            .header(header::HOST, address.to_string())
            .body(Empty::<Bytes>::new())
            .map_err(std::io::Error::other)?;
        let response = client.send_request(request).await;
        response.map_err(std::io::Error::other)
    };
    let response = match timeout(CONNECT, connected).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(late()),
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
    let body = timeout(CONNECT, Limited::new(body, limit).collect()).await;
    let body = body.map_err(|_| late())?.map_err(|error| error.to_string());
    Ok(body?.to_bytes())
}

fn late() -> String {
    format!("no response within {} s", CONNECT.as_secs())
}
