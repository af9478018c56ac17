//! Listeners in force: their bound addresses, and the key by which a reload recognizes their sockets.

use std::sync::Arc;

use maglor_config::listener::TrafficDirection;
use maglor_config::{self as config, Address};
use tokio::sync::watch;

use crate::control::build::UnixFile;
use crate::routing::listener::Listener;

/// A listener in force.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) state: watch::Sender<Arc<Listener>>,
    pub(super) bound: Address,
    /// File of the Unix socket, if there is one; removed when the listener stops accepting.
    pub(super) file: Option<UnixFile>,
    /// Key of the worker sockets; it does not change when the listener is renamed.
    pub(super) key: Arc<str>,
}

impl Listening {
    /// Sets the permissions of a Unix socket's file to the configured ones.
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

/// Returns the key of a listener's socket: its address, so that a renamed listener keeps its socket. For port 0,
/// which is a new address each time, the key is the listener's name.
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
