//! The proxies of the pods, their applications and clients.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::http::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::fs::Uid;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::part::Part;
use super::plane::{ControlPlane, token};
use super::pods::{NAMESPACE, Pod};
use crate::distribution::api::Connection;
use crate::error::{Doing, Error, Result};

/// The port of the application of all pods.
pub(super) const APPLICATION: u16 = 8080;
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Headers in which inbound proxies name an authenticated client.
const CLIENT: [&str; 2] = ["x-forwarded-client-cert", "l5d-client-id"];

/// The proxy of a pod, and the connections of its application, which keep its subscriptions.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) pod: Pod,
    proxy: Part,
    connections: Vec<TcpStream>,
}

/// Ends all proxies, together: each waits for its open connections.
pub(super) fn leave(mut members: Vec<Member>) {
    for member in &mut members {
        member.connections.clear();
        member.proxy.ask_to_end();
    }
}

/// Serves as the application of all pods: it answers with the authenticated client.
pub(super) async fn serve_application() -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, APPLICATION));
    let listener = TcpListener::bind(address).await;
    let listener = listener.doing(format!("listen on {address}"))?;
    tokio::task::spawn_local(async move {
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
    Ok(())
}

/// Starts the proxies of pods, and lets the application of each call all Services but its own: meshes differ in whether
/// a call of a pod to itself is authenticated.
pub(super) async fn join(
    plane: &dyn ControlPlane,
    pods: &[Pod],
    services: &[Ipv4Addr],
    api: &mut Connection,
    folder: &Path,
) -> Result<Vec<Member>> {
    let mut proxies = Vec::new();
    for pod in pods {
        let own = folder.join(&pod.name);
        fs::create_dir_all(&own).doing("make a folder")?;
        let text = api.token(NAMESPACE, &pod.name, plane.audience()).await?;
        fs::write(token(&own), text).doing("write a token")?;
        let mut command = plane.proxy(pod, &own)?;
        command.gid(pod.place.group());
        let log = own.join("proxy.log");
        proxies.push(Part::run(&pod.name, &mut command, pod.place.admin(), log)?);
    }
    let started = Instant::now();
    for proxy in &mut proxies {
        proxy.wait_ready(started, PATIENCE).await?;
    }
    let calls: Vec<_> = pods.iter().map(|pod| application(pod, services)).collect();
    let mut members = Vec::new();
    for ((pod, proxy), calls) in pods.iter().zip(proxies).zip(calls) {
        let connections = calls
            .await
            .map_err(|_| Error::protocol("an application panicked"))?;
        members.push(Member {
            pod: pod.clone(),
            proxy,
            connections: connections?,
        });
    }
    Ok(members)
}

/// Lets the application of a pod call all Services, on a thread with its user.
fn application(pod: &Pod, services: &[Ipv4Addr]) -> oneshot::Receiver<Result<Vec<TcpStream>>> {
    let (sender, receiver) = oneshot::channel();
    let (user, name) = (pod.place.user(), pod.name.clone());
    let others = services.iter().enumerate();
    let others = others.filter(|(index, _)| !pod.is_of(*index));
    let services: Vec<_> = others.map(|(_, address)| *address).collect();
    thread::spawn(move || {
        let called = rustix::thread::set_thread_uid(Uid::from_raw(user))
            .map_err(io::Error::from)
            .doing("become the user of an application");
        let called = called.and_then(|()| {
            let calls = services.iter().map(|service| {
                let what = format!("a call from {name} to {service}");
                authenticated((*service, 80).into(), &what)
            });
            calls.collect()
        });
        // The measurement may have ended.
        let _ = sender.send(called);
    });
    receiver
}

/// Calls a Service until the application has answered and knows the client: while many proxies start, calls time out.
fn authenticated(service: SocketAddr, what: &str) -> Result<TcpStream> {
    let started = Instant::now();
    loop {
        let (connection, answer) = call(service).doing(what)?;
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
fn call(address: SocketAddr) -> io::Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: application\r\n\r\n")?;
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
