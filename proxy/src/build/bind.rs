//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use maglor_config as config;
use socket2::{Domain, Protocol, Socket, Type};

use super::BuildError;

/// Connections that may wait for `accept`.
const BACKLOG: i32 = 4096;

/// One listening socket a worker, all on one address; with `alone` only if no other socket has it.
pub(crate) fn bind(
    listener: &config::Listener,
    workers: usize,
    alone: bool,
) -> Result<Vec<TcpListener>, BuildError> {
    let failed = |address, source| BuildError::Bind {
        listener: Arc::clone(&listener.name),
        address,
        source,
    };
    let mut address = listener.address;
    if alone && address.port() != 0 {
        probe(address).map_err(|source| failed(address, source))?;
    }
    let mut sockets = Vec::with_capacity(workers);
    for _ in 0..workers {
        let bound = bind_one(address).and_then(|socket| {
            // Port 0 is chosen once, for all workers.
            address = socket.local_addr()?;
            Ok(socket)
        });
        sockets.push(bound.map_err(|source| failed(address, source))?);
    }
    Ok(sockets)
}

/// What keeps listeners and the admin server of this configuration from being bound now.
#[must_use]
pub fn unusable_addresses(config: &config::Config) -> Vec<BuildError> {
    let mut found = Vec::new();
    for listener in &config.listeners {
        let address = listener.address;
        if let Err(source) = probe(address) {
            let listener = Arc::clone(&listener.name);
            found.push(BuildError::Bind {
                listener,
                address,
                source,
            });
        }
    }
    if let Some(admin) = &config.admin {
        let address = admin.address;
        if let Err(source) = probe(address) {
            found.push(BuildError::BindAdmin { address, source });
        }
    }
    found
}

/// The kernel lets all processes of a user share a port; a socket that does not share it is refused.
fn probe(address: SocketAddr) -> io::Result<()> {
    socket(address, false)?.bind(&address.into())
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address, true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        // `[::]` is for both families, as operators expect it from other proxies.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // Workers share a port, and so do an old and a new listener where one address is a wildcard.
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
