//! Short requests to admin and control servers.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::error::{Doing, Error, Result};

/// Returns the body of a response whose status is a success.
///
/// # Errors
/// There is none.
pub(super) async fn text(target: SocketAddr, method: &str, path: &str) -> Result<String> {
    let stream = TcpStream::connect(target)
        .await
        .doing(format!("connect to {target}"))?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(protocol)?;
    tokio::task::spawn_local(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", target.to_string());
    let request = request.body(Empty::<Bytes>::new()).map_err(protocol)?;
    let answer = sender.send_request(request).await.map_err(protocol)?;
    let status = answer.status();
    let body = answer
        .into_body()
        .collect()
        .await
        .map_err(protocol)?
        .to_bytes();
    if status.is_success() {
        return Ok(String::from_utf8_lossy(&body).into_owned());
    }
    Err(Error::protocol(format!(
        "{method} {path} of {target}: {status}"
    )))
}

fn protocol(error: impl std::fmt::Display) -> Error {
    Error::protocol(error.to_string())
}
