//! Listeners in force: where they are bound, and by what a reload knows them again.

use std::sync::Arc;

use maglor_config::listener::TrafficDirection;
use maglor_config::{self as config, Address};
use tokio::sync::watch;

use crate::control::build::UnixFile;
use crate::routing::listener::Listener;

/// A listener that is in force.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) state: watch::Sender<Arc<Listener>>,
    pub(super) bound: Address,
    /// Of a Unix socket: it goes when no connection is accepted any more.
    pub(super) file: Option<UnixFile>,
    /// What the sockets are called by the workers; outlives a renaming of the listener.
    pub(super) key: Arc<str>,
}

impl Listening {
    /// Gives the file of a Unix socket the permissions of the configuration.
    pub(super) fn set_mode(&self, mode: u32) {
        let before = self.state.borrow().config.mode;
        if let Some(file) = self.file.as_ref().filter(|_| before != mode)
            && let Err(error) = file.set_mode(mode)
        {
            tracing::warn!(address = %self.bound, %error, "cannot change the mode of a socket's file");
        }
    }

    pub(super) fn is_outbound(&self) -> bool {
        self.state.borrow().config.direction == TrafficDirection::Outbound
    }
}

/// A socket belongs to its address: a listener may be renamed without losing it. Port 0 is a new
/// address each time, so there the name counts.
pub(super) fn socket_key(listener: &config::Listener) -> Arc<str> {
    if listener
        .address
        .ip()
        .is_some_and(|address| address.port() == 0)
    {
        return Arc::clone(&listener.name);
    }
    listener.address.to_string().into()
}
