//! Creates listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use maglor_config::{self as config, Address, UnixAddress};
use socket2::{Domain, Protocol, Socket, Type};

pub(crate) use self::unix::UnixFile;
use super::BuildError;
use crate::net::socket::Listening;

mod unix;

/// Length of the queue of connections that wait for `accept`.
const BACKLOG: i32 = 4096;

/// The listening sockets of one listener.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    /// One socket for each worker.
    pub(crate) each: Vec<Listening>,
    /// The bound address; `None` if there are no sockets.
    pub(crate) bound: Option<Address>,
    /// File of a Unix socket; `None` for other addresses and for abstract sockets.
    pub(crate) file: Option<UnixFile>,
}

/// Binds one listening socket for each worker, all to the same address. With `alone`, fails if any other socket is
/// bound to this address.
pub(crate) fn bind(
    listener: &config::Listener,
    workers: usize,
    alone: bool,
) -> Result<Sockets, BuildError> {
    let bound = match &listener.address {
        Address::Ip(address) => bind_ip(*address, workers, alone),
        Address::Unix(address) => bind_unix(address, listener.mode, workers),
    };
    bound.map_err(|source| failed(&listener.name, &listener.address, source))
}

fn failed(listener: &Arc<str>, address: &Address, source: io::Error) -> BuildError {
    BuildError::Bind {
        listener: Arc::clone(listener),
        address: address.clone(),
        source,
    }
}

fn bind_ip(mut address: SocketAddr, workers: usize, alone: bool) -> io::Result<Sockets> {
    if alone && address.port() != 0 {
        probe_ip(address)?;
    }
    let mut each = Vec::with_capacity(workers);
    for _ in 0..workers {
        let socket = bind_one(address)?;
        // The system chooses a port for 0 once; all workers use the same port.
        address = socket.local_addr()?;
        each.push(Listening::Tcp(socket));
    }
    Ok(Sockets {
        each,
        bound: Some(address.into()),
        file: None,
    })
}

/// Binds a Unix socket. Unix sockets have no `SO_REUSEPORT`, so all workers accept from one socket.
fn bind_unix(address: &UnixAddress, mode: u32, workers: usize) -> io::Result<Sockets> {
    let (socket, file) = unix::bind(address, mode)?;
    let clones = (1..workers).map(|_| socket.try_clone());
    let mut each = clones.collect::<io::Result<Vec<_>>>()?;
    each.push(socket);
    Ok(Sockets {
        each: each.into_iter().map(Listening::Unix).collect(),
        bound: Some(Address::Unix(address.clone())),
        file,
    })
}

/// Returns errors for the listener and admin addresses that cannot be bound now.
#[must_use]
pub fn unusable_addresses(config: &config::Config) -> Vec<BuildError> {
    let listeners = config.listeners.iter().filter_map(|one| {
        let probed = match &one.address {
            Address::Ip(address) => probe_ip(*address),
            Address::Unix(address) => unix::probe(address),
        };
        let source = probed.err()?;
        Some(failed(&one.name, &one.address, source))
    });
    let admin = config.admin.iter().filter_map(|admin| {
        let address = admin.address;
        let source = probe_ip(address).err()?;
        Some(BuildError::BindAdmin { address, source })
    });
    listeners.chain(admin).collect()
}

/// Binds without sharing the port. The kernel lets processes of one user share a port, so that only an unshared bind
/// fails if the port is taken.
fn probe_ip(address: SocketAddr) -> io::Result<()> {
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
        // `[::]` accepts both families, as in other proxies.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // Workers share a port. So do an old and a new listener if the address of either is a wildcard.
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
