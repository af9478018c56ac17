//! The `maglor-proxy` binary: arguments, configuration, exit code.

use std::process::ExitCode;

use clap::Parser as _;

mod args;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// jemalloc looks for its settings under this name: few arenas (there are few threads), free pages
/// kept for half a second, and only small objects in the threads' own caches.
#[allow(
    unsafe_code,
    reason = "the name is jemalloc's, and so is the type: a C string"
)]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static ALLOCATOR_SETTINGS: Option<&'static [u8; 63]> =
    Some(b"narenas:2,dirty_decay_ms:500,muzzy_decay_ms:0,lg_tcache_max:13\0");

fn main() -> ExitCode {
    args::Args::parse().run()
}
