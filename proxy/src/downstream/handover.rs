//! Hands accepted connections over to other workers ([`OpenConnections`](crate::runtime::open_connections::OpenConnections)
//! says to which).

use std::io;
use std::net;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::routing::listener::Listener;

/// A connection that another worker has accepted. It is counted for the worker that gets it.
#[derive(Debug)]
pub(crate) struct HandedOver {
    tcp: net::TcpStream,
    pub(super) state: watch::Receiver<Arc<Listener>>,
}

impl HandedOver {
    /// Registers the socket; must be called within the worker's runtime.
    pub(super) fn register(self) -> io::Result<(TcpStream, watch::Receiver<Arc<Listener>>)> {
        Ok((TcpStream::from_std(self.tcp)?, self.state))
    }
}

/// The connections that other workers hand over. Bounded by the limits of connections, which the sender checks.
pub(crate) type Inbox = UnboundedReceiver<HandedOver>;

/// The inboxes of all workers, by their index.
#[derive(Clone, Debug)]
pub(crate) struct Inboxes(Arc<[UnboundedSender<HandedOver>]>);

impl Inboxes {
    /// Creates the inboxes of this many workers.
    pub(crate) fn new(workers: usize) -> (Self, Vec<Inbox>) {
        let (senders, inboxes): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| unbounded_channel()).unzip();
        (Self(senders.into()), inboxes)
    }

    /// Hands a connection over to a worker; returns it if the worker takes no more, because it drains.
    pub(super) fn send(
        &self,
        worker: usize,
        tcp: TcpStream,
        state: &watch::Receiver<Arc<Listener>>,
    ) -> io::Result<Option<TcpStream>> {
        let connection = HandedOver {
            tcp: tcp.into_std()?,
            state: state.clone(),
        };
        match self.0[worker].send(connection) {
            Ok(()) => Ok(None),
            Err(refused) => refused.0.register().map(|(tcp, _)| Some(tcp)),
        }
    }
}
