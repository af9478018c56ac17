//! Idle keep-alive connections: one request on each, then silence until stdin closes.

use std::io::{self, Read, Write};

use super::Target;
use super::connection::open_all;
use crate::error::{Doing, Result};
use crate::http::block_on;

/// Opens the connections, prints `ready`, and holds them until standard input closes.
///
/// # Errors
/// A connection cannot be opened or its request fails.
pub fn run(target: &Target) -> Result<()> {
    block_on(async {
        let connections = open_all(target).await?;
        writeln!(io::stdout(), "ready").doing("report that the connections are open")?;
        let _ = io::stdin().read(&mut [0]).doing("wait for the end")?;
        drop(connections);
        Ok(())
    })
}
