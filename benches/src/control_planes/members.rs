//! The proxies of the pods, their applications and clients.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::http::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::network::Network;
use super::part::Part;
use super::plane::{ControlPlane, token};
use super::pods::{NAMESPACE, Pod};
use super::sidecar::APPLICATION;
use crate::distribution::api::Connection;
use crate::error::{Doing, Error, Result};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Headers in which inbound proxies name an authenticated client.
const CLIENT: [&str; 2] = ["x-forwarded-client-cert", "l5d-client-id"];

/// The proxy of a pod, its application, and the connections of this, which keep the proxy's subscriptions.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) pod: Pod,
    proxy: Part,
    connections: Vec<TcpStream>,
    /// Ends when this is dropped.
    _application: JoinSet<()>,
    network: Network,
}

/// Ends all proxies, together: each waits for its open connections.
pub(super) fn leave(mut members: Vec<Member>) {
    for member in &mut members {
        member.connections.clear();
        member.proxy.ask_to_end();
    }
}

/// Starts the applications and proxies of pods, and lets the application of each call all Services but its own: meshes
/// differ in whether a call of a pod to itself is authenticated.
pub(super) async fn join(
    plane: &dyn ControlPlane,
    pods: &[Pod],
    services: &[Ipv4Addr],
    api: &mut Connection,
    folder: &Path,
) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for pod in pods {
        members.push(start(plane, pod, api, folder).await?);
    }
    let started = Instant::now();
    for member in &mut members {
        member.proxy.wait_ready(started, PATIENCE).await?;
    }
    let calls: Vec<_> = members
        .iter()
        .map(|member| call_all(member, services))
        .collect();
    for (member, calls) in members.iter_mut().zip(calls) {
        let connections = calls
            .await
            .map_err(|_| Error::protocol("an application panicked"))?;
        member.connections = connections?;
    }
    Ok(members)
}

/// Starts the application and the proxy of a pod, in its network.
async fn start(
    plane: &dyn ControlPlane,
    pod: &Pod,
    api: &mut Connection,
    folder: &Path,
) -> Result<Member> {
    let sidecar = plane.sidecar();
    let own = folder.join(&pod.name);
    fs::create_dir_all(&own).doing("make a folder")?;
    let text = api.token(NAMESPACE, &pod.name, sidecar.audience).await?;
    fs::write(token(&own), text).doing("write a token")?;
    let network = Network::create(pod.ip, &sidecar)?;
    Ok(Member {
        pod: pod.clone(),
        _application: application(&network)?,
        proxy: Part::start_in(&network, &plane.proxy(pod, &own)?, &own)?,
        connections: Vec::new(),
        network,
    })
}

/// Serves as the application of a pod: it answers with the authenticated client.
fn application(network: &Network) -> Result<JoinSet<()>> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, APPLICATION));
    let listener = network.enter(|| std::net::TcpListener::bind(address))?;
    let listen = || {
        let listener = listener?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    let listener = listen().doing(format!("listen on {address}"))?;
    let mut tasks = JoinSet::new();
    tasks.spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(async |request: Request<hyper::body::Incoming>| {
                let values = CLIENT
                    .iter()
                    .filter_map(|name| request.headers().get(*name));
                let text = values.flat_map(HeaderValue::as_bytes).copied();
                let body = Full::new(Bytes::from_iter(text));
                Ok::<_, std::convert::Infallible>(Response::new(body))
            });
            tokio::task::spawn_local(
                http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    Ok(tasks)
}

/// Lets the application of a pod call all Services, on a thread in its network.
fn call_all(member: &Member, services: &[Ipv4Addr]) -> oneshot::Receiver<Result<Vec<TcpStream>>> {
    let (sender, receiver) = oneshot::channel();
    let (pod, name) = (&member.pod, member.pod.name.clone());
    let others = services.iter().enumerate();
    let others = others.filter(|(index, _)| !pod.is_of(*index));
    let services: Vec<_> = others.map(|(index, address)| (index, *address)).collect();
    let namespace = Arc::clone(&member.network.namespace);
    thread::spawn(move || {
        let entered = namespace.enter().doing("enter the network of a pod");
        let called = entered.and_then(|()| {
            let calls = services.iter().map(|(index, address)| {
                let what = format!("a call from {name} to {address}");
                // Istio chooses the Service by this name, others by the address.
                let host = format!("s{index}.{NAMESPACE}.svc.cluster.local");
                authenticated((*address, 80).into(), &host, &what)
            });
            calls.collect()
        });
        // The measurement may have ended.
        let _ = sender.send(called);
    });
    receiver
}

/// Calls a Service until the application has answered and knows the client: while many proxies start, calls time out.
fn authenticated(service: SocketAddr, host: &str, what: &str) -> Result<TcpStream> {
    let started = Instant::now();
    loop {
        let (connection, answer) = call(service, host).doing(what)?;
        if answer.starts_with("HTTP/1.1 200") && answer.contains(NAMESPACE) {
            return Ok(connection);
        }
        if started.elapsed() > PATIENCE {
            return Err(Error::protocol(format!("{what}: {answer}")));
        }
        thread::sleep(POLL);
    }
}

/// Sends a request on a new connection; returns it with the answer.
fn call(address: SocketAddr, host: &str) -> io::Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET / HTTP/1.1\r\nhost: {host}\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut part = [0; 1024];
    while !is_complete(&String::from_utf8_lossy(&answer)) {
        match stream.read(&mut part)? {
            0 => break,
            length => answer.extend_from_slice(&part[..length]),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Ok((stream, answer))
}

fn is_complete(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_ascii_lowercase();
    let mut lengths = head
        .lines()
        .filter_map(|line| line.strip_prefix("content-length:"));
    let length = lengths.next().and_then(|text| text.trim().parse().ok());
    length.is_none_or(|length: usize| body.len() >= length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_with_its_body() {
        assert!(!is_complete("HTTP/1.1 200 OK\r\n"));
        assert!(!is_complete(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"
        ));
        assert!(is_complete(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
        ));
        assert!(is_complete("HTTP/1.1 204 No Content\r\n\r\n"));
    }
}
