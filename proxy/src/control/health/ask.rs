//! A single health check of an endpoint.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Method, Version};
use maglor_balance::guard::GrpcStatus;
use maglor_config::{HealthCheck, HealthCheckKind};
use maglor_xds::frame::frame_encoded;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::control::own_request::{self, request};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::message::{Body, Message, Request};
use crate::upstream::{Cluster, Pools, Sender, Target};

/// Maximum number of bytes read of a response.
const MOST: usize = 4096;
/// Prefix of an uncompressed message of two bytes (gRPC's `PROTOCOL-HTTP2.md`).
const PREFIX: [u8; 5] = [0, 0, 0, 0, 2];

/// Reason why an endpoint is not known to be healthy.
#[derive(Debug)]
pub(crate) struct Ill {
    /// The reason as text, for the log.
    pub(crate) why: String,
    /// Whether the check could not be made for lack of local resources; the endpoint may be healthy.
    pub(crate) unasked: bool,
}

impl From<ProxyError> for Ill {
    fn from(error: ProxyError) -> Self {
        Self {
            why: error.to_string(),
            unasked: !error.is_upstreams(),
        }
    }
}

impl From<io::Error> for Ill {
    fn from(error: io::Error) -> Self {
        error.to_string().into()
    }
}

impl From<String> for Ill {
    fn from(why: String) -> Self {
        Self {
            why,
            unasked: false,
        }
    }
}

impl From<&str> for Ill {
    fn from(why: &str) -> Self {
        why.to_owned().into()
    }
}

/// Checks an endpoint once.
///
/// # Errors
/// If the endpoint is not healthy, or if its health is unknown.
pub(crate) async fn check(
    config: &HealthCheck,
    cluster: &Arc<Cluster>,
    target: &Arc<Target>,
    pools: &Pools,
) -> Result<(), Ill> {
    let target = match config.port {
        Some(port) => Cow::Owned(target.at_port(port.get())),
        None => Cow::Borrowed(target),
    };
    let sender = own_request::sender(cluster, &target, pools);
    match &config.kind {
        HealthCheckKind::Grpc { service, authority } => {
            let path = "/grpc.health.v1.Health/Check";
            // HTTP/2 is required for gRPC. Without this, a cluster that follows its clients' version, or that uses
            // HTTP/1.1 between proxies of the mesh, would use another version.
            let request = request(Method::POST, Version::HTTP_2, path, |fields| {
                fields.push(Known::ContentType, b"application/grpc");
                fields.push(Known::Te, b"trailers");
                fields.push(Known::Host, &host(authority.as_ref(), &target));
            });
            grpc(sender, request, service).await
        }
        HealthCheckKind::Http {
            path,
            host: name,
            expected,
        } => {
            let request = request(Method::GET, Version::HTTP_11, path, |fields| {
                fields.push(Known::Host, &host(name.as_ref(), &target));
                fields.push(Known::UserAgent, b"maglor-health-check");
            });
            let body = Body::empty();
            let response = sender.send(&mut Message { request, body }).await?;
            let status = response.status.as_u16();
            // Read to the end, so that the connection can be reused.
            let _ = own_request::read(response, MOST).await;
            let fine = expected.iter().any(|range| range.contains(&status));
            fine.then_some(())
                .ok_or_else(|| format!("status {status}").into())
        }
        HealthCheckKind::Tcp { send, receive } => tcp(sender, send, receive).await,
    }
}

fn host(configured: Option<&http::HeaderValue>, target: &Target) -> Vec<u8> {
    match configured {
        Some(value) => value.as_bytes().to_vec(),
        None => target.authority().into_bytes(),
    }
}

/// Calls `grpc.health.v1.Health/Check`. Each message has a single field, so both are encoded by hand.
async fn grpc(sender: Sender<'_>, request: Request, service: &str) -> Result<(), Ill> {
    let body = Body::full(grpc_question(service));
    let response = sender.send(&mut Message { request, body }).await?;
    if response.status != http::StatusCode::OK {
        return Err(format!("status {}", response.status.as_u16()).into());
    }
    let answer = own_request::read(response, MOST).await?;
    match answer.grpc {
        Some(GrpcStatus::OK) if answer.data.strip_prefix(&PREFIX).is_some_and(is_serving) => Ok(()),
        Some(GrpcStatus::OK) => Err("not serving".into()),
        Some(status) => Err(format!("grpc-status {}", status.code()).into()),
        None => Err("no grpc-status".into()),
    }
}

/// Encodes `HealthCheckRequest { service }` (field 1, text) with gRPC's prefix.
pub(crate) fn grpc_question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.put_u8((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        message.put_u8(length as u8);
        message.put_slice(service.as_bytes());
    }
    frame_encoded(&message)
}

/// Returns whether the message is `HealthCheckResponse { status: SERVING }`: field 1, a varint, 1.
pub(crate) fn is_serving(message: &[u8]) -> bool {
    matches!(message, [0x08, 1])
}

async fn tcp(sender: Sender<'_>, send: &[u8], receive: &[u8]) -> Result<(), Ill> {
    let mut io = sender.stream().await?.io;
    io.write_all(send).await?;
    io.flush().await?;
    let mut got = Vec::new();
    while memchr::memmem::find(&got, receive).is_none() {
        if io.read_buf(&mut got).await? == 0 || got.len() > MOST {
            return Err("the response does not contain the expected bytes".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_of_grpc() {
        assert_eq!(&grpc_question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&grpc_question("ab")[..], b"\0\0\0\0\x04\x0a\x02ab");
        let long = "x".repeat(300);
        assert_eq!(
            &grpc_question(&long)[..8],
            [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]
        );
    }

    #[test]
    fn only_serving_serves() {
        assert!(is_serving(&[8, 1]));
        assert!(!is_serving(&[8, 2]));
        assert!(!is_serving(&[]));
    }
}
