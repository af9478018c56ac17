//! Short requests to admin and control servers, and the runtime of one thread that sends them.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::error::{Doing, Error, Result};

/// Runs `work`, and the tasks that it spawns, on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    LocalSet::new().block_on(&runtime.doing("start the harness's runtime")?, work)
}

/// Returns the body of a response whose status is a success.
pub(crate) async fn text(
    target: SocketAddr,
    method: &str,
    path: &str,
    body: String,
) -> Result<String> {
    let what = || format!("{method} {path} of {target}");
    let failed = |error: hyper::Error| Error::protocol(format!("{}: {error}", what()));
    let stream = TcpStream::connect(target).await.doing(what())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    tokio::task::spawn_local(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", target.to_string())
        .body(Full::<Bytes>::from(body))
        .map_err(|error| Error::protocol(format!("{}: {error}", what())))?;
    let answer = sender.send_request(request).await.map_err(failed)?;
    let status = answer.status();
    let body = answer.into_body().collect().await.map_err(failed)?;
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    match status.is_success() {
        true => Ok(text),
        false => Err(Error::protocol(format!("{}: {status}: {text}", what()))),
    }
}
