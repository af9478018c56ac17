//! Free loopback ports, below the range that the kernel uses for outgoing connections.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::error::{Error, Result};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static OFFSET: AtomicU16 = AtomicU16::new(0);

/// Returns a loopback address without a listener that was not returned recently.
pub(crate) fn free() -> Result<SocketAddr> {
    let start = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap_or(0);
    for _ in 0..COUNT {
        // Relaxed: the counter only has to return different numbers.
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

/// A block of loopback addresses, by their users.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Block {
    /// Instances of an application: 127.1.0.0/16.
    Instances,
    /// Users of an application: 127.2.0.0/16.
    Users,
}

/// Returns a loopback address with a single owner, like that of a pod: policies may hash it. A
/// block has 62 500 addresses, more than processes and connections on a machine.
#[must_use]
pub(crate) fn address(block: Block, index: usize) -> IpAddr {
    let part = |number: usize| u8::try_from(number % 250).unwrap_or_default();
    let block = match block {
        Block::Instances => 1,
        Block::Users => 2,
    };
    IpAddr::from([127, block, part(index / 250), part(index) + 1])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_differ() {
        assert_ne!(free().unwrap(), free().unwrap());
    }

    #[test]
    fn addresses_differ() {
        let blocks = [Block::Instances, Block::Users];
        let all = blocks.map(|block| (0..1000).map(move |index| address(block, index)));
        let all: BTreeSet<_> = all.into_iter().flatten().collect();
        assert_eq!(all.len(), 2000);
        assert!(all.iter().all(IpAddr::is_loopback));
    }
}
