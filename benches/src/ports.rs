//! Free loopback ports, below the range that the kernel gives to outgoing connections.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::error::{Error, Result};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static OFFSET: AtomicU16 = AtomicU16::new(0);

/// A loopback address that nobody listens on and that was not handed out recently.
///
/// # Errors
/// All ports of the range are taken.
pub fn free() -> Result<SocketAddr> {
    let start = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap_or(0);
    for _ in 0..COUNT {
        // Relaxed: the counter only has to give different numbers.
        let offset = OFFSET.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start.wrapping_add(offset)) % COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(Error::protocol(format!(
        "no free port from {FIRST} to {}",
        FIRST + COUNT
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ() {
        assert_ne!(free().unwrap(), free().unwrap());
    }
}
