//! A port of the host's loopback interface that is forwarded to the API server.
//!
//! The host has no route into the cluster, and needs none: threads in the control plane's network relay connections to
//! the port. When the cluster has stopped, the port refuses connections. No packet can leave the machine.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread::{self, JoinHandle};

use rustix::fd::AsFd as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::cluster::error::{At as _, ClusterError};

/// A relay, which stops accepting connections when the value is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    listener: TcpListener,
    thread: Option<JoinHandle<Option<()>>>,
}

impl Relay {
    /// Binds a free port of the host's loopback interface.
    pub(crate) fn bind() -> Result<TcpListener, ClusterError> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).at(Path::new("127.0.0.1:0"))
    }

    /// Relays connections of `listener` to the same port of the loopback interface of a network namespace.
    pub(crate) fn start(listener: TcpListener, network: &Path) -> Result<Self, ClusterError> {
        let accepting = listener.try_clone().at(network)?;
        let target = listener.local_addr().at(network)?;
        let thread = in_network(network, move || accept(&accepting, target))?;
        Ok(Self {
            listener,
            thread: Some(thread),
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Unblocks a waiting accept on Linux.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs a closure on a thread in another network namespace. The thread returns nothing if it could not enter the
/// namespace, which is reported as an error here.
///
/// # Errors
///
/// `network` is not a network namespace, or may not be entered.
pub(crate) fn in_network<T: Send + 'static>(
    network: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<Option<T>>, ClusterError> {
    let namespace = File::open(network).at(network)?;
    let (said, entered) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        let kind = Some(LinkNameSpaceType::Network);
        let moved = move_into_link_name_space(namespace.as_fd(), kind);
        // A closure for one network must not run in another.
        let may_work = moved.is_ok();
        let _ = said.send(moved);
        may_work.then(work)
    });
    match entered.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(io::Error::from(error)).at(network),
        Err(_) => Err(io::Error::other(
            "the thread that enters the network namespace ended unexpectedly",
        ))
        .at(network),
    }
}

fn accept(listener: &TcpListener, target: SocketAddr) {
    while let Ok((client, _)) = listener.accept() {
        // A closed connection informs the client that the API server is unavailable.
        if let Ok(server) = TcpStream::connect(target) {
            let _ = relay(client, server);
        }
    }
}

/// Copies bytes in both directions, each on a thread of its own; the threads end with their connections.
fn relay(client: TcpStream, server: TcpStream) -> io::Result<()> {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let back = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || copy(client, server));
    thread::spawn(move || copy(back.0, back.1));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = (from.shutdown(Shutdown::Read), to.shutdown(Shutdown::Write));
}
