//! The `maglor-proxy` binary: arguments, configuration, exit code.

use std::process::ExitCode;

mod cli;

#[cfg(feature = "manual")]
use maglor_telemetry::command_line::manual;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// jemalloc reads its settings from this symbol: few arenas (there are few threads), free pages kept for half
/// a second, only small objects in thread caches, and slabs of 16 pages for connection buffers, because a
/// slab's metadata is not freed with the slab. Thread caches are trimmed after 256 KiB instead of 64: trimming takes
/// 2 % of the instructions of a request.
#[allow(
    unsafe_code,
    reason = "the name is jemalloc's, and so is the type: a C string"
)]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static ALLOCATOR_SETTINGS: Option<&'static [u8; 137]> = Some(
    b"narenas:2,dirty_decay_ms:500,muzzy_decay_ms:0,lg_tcache_max:13,\
      tcache_gc_incr_bytes:262144,\
      slab_sizes:1024-4096:16,cache_oblivious:false\0",
);

fn main() -> ExitCode {
    maglor_proxy::limit_fault_around();
    #[cfg(feature = "manual")]
    if let Some(folder) = std::env::var_os(manual::FOLDER) {
        let command = <cli::Args as clap::CommandFactory>::command();
        let section = manual::Section::Daemons;
        return match manual::write(command, section, folder.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{}: {error}", folder.display());
                ExitCode::FAILURE
            }
        };
    }
    let command = cli::parse();
    // Parsing the arguments needs more code than all the rest of the start.
    maglor_proxy::forget_start();
    command.run()
}
