//! The command: finds the proxies, measures them, writes the results.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Doing, Result};
use crate::measure::{Bench, Cpus, Results};
use crate::options::{Options, Part};
use crate::peer::{self, Credentials, Origin, Peer, Running, Subject};
use crate::redirection::Redirection;
use crate::report::{self, Machine, Summary};
use crate::sys;

/// Compares, writes and prints; returns whether all runs counted and all bars were reached.
///
/// # Errors
/// The comparison cannot be made, or its results cannot be written.
pub fn run(options: Options) -> Result<bool> {
    let cpus = Cpus::share(&sys::allowed_cpus())?;
    peer::sweep();
    let mut peers = locate_all(&options)?;
    let limit = sys::raise_file_limit().doing("raise the limit of open files")?;
    eprintln!(
        "open files: {limit}; proxies on CPU {}, load on CPU {}",
        cpus.proxy, cpus.load
    );
    let machine = Machine::look(&peers);
    let directory = directory(&options, &machine)?;
    sys::pin(cpus.load).doing("pin the harness")?;
    let (redirection, left_out) = redirect(&mut peers);
    let origin = Origin::start(cpus.origin, redirection)?;
    let mut bench = Bench {
        options,
        peers,
        cpus,
        origin,
        left_out,
    };
    let summary = match bench.options.head_to_head {
        true => head_to_head(&mut bench, &directory)?,
        false => {
            let results = measure(&bench, &directory.join("raw.csv"))?;
            report::summary(&bench, &results)
        }
    };
    fs::write(directory.join("summary.md"), &summary.document).doing("write summary.md")?;
    let readme = report::readme(&bench, &machine);
    fs::write(directory.join("README.md"), readme).doing("write README.md")?;
    report::print(&summary);
    eprintln!("written to {}", directory.display());
    Ok(summary.passed)
}

/// Verifies that all proxies do equal work, and measures them.
fn measure(bench: &Bench, raw: &Path) -> Result<Results> {
    for peer in &bench.peers {
        Running::start(peer, &bench.origin, bench.cpus.proxy)?.verify()?;
    }
    let raw = fs::File::create(raw).doing(format!("make {}", raw.display()))?;
    let mut results = Results::new(Box::new(raw))?;
    bench.run(&mut results)?;
    Ok(results)
}

/// Measures single proxies, then pairs.
fn head_to_head(bench: &mut Bench, directory: &Path) -> Result<Summary> {
    bench.options.parts = vec![Part::Footprint, Part::Load];
    eprintln!("single proxies");
    let single = measure(bench, &directory.join("raw-single.csv"))?;
    eprintln!("pairs");
    bench.options.pair = true;
    let credentials = Arc::new(Credentials::new()?);
    for peer in &mut bench.peers {
        peer.pair = Some(Arc::clone(&credentials));
    }
    let pair = measure(bench, &directory.join("raw-pair.csv"))?;
    Ok(report::head_to_head(bench, &single, &pair))
}

/// Moves the comparison behind a redirection if linkerd2-proxy takes part; where that is not possible, removes the
/// proxy and returns the reason.
fn redirect(peers: &mut Vec<Peer>) -> (Option<Redirection>, Option<String>) {
    let linkerd = |peer: &Peer| peer.subject == Subject::Linkerd;
    if !peers.iter().any(linkerd) {
        return (None, None);
    }
    match Redirection::enter() {
        Ok(redirection) => (Some(redirection), None),
        Err(error) => {
            peers.retain(|peer| !linkerd(peer));
            let left_out = format!("{} was left out: {error}", Subject::Linkerd);
            eprintln!("skipped: {left_out}");
            (None, Some(left_out))
        }
    }
}

fn locate_all(options: &Options) -> Result<Vec<Peer>> {
    let credentials = options.pair.then(Credentials::new).transpose()?;
    let pair = credentials.map(Arc::new);
    let subjects = options.subjects();
    let located = |subject| {
        let passed = match subject {
            Subject::Earlier => &options.earlier,
            Subject::Linkerd => &options.linkerd,
            _ => &options.maglor,
        };
        let peer = peer::locate(subject, passed.as_deref())?;
        let pair = pair.clone();
        let connections = match options.parts.contains(&Part::Waiting) {
            true => peer::CONNECTIONS_IN_FLIGHT,
            false => peer::CONNECTIONS,
        };
        Ok(Peer {
            pair,
            connections,
            ..peer
        })
    };
    Subject::ALL
        .into_iter()
        .filter(|subject| match subject {
            Subject::Earlier => options.earlier.is_some(),
            Subject::Linkerd => options.linkerd.is_some(),
            _ => subjects.contains(subject),
        })
        .map(located)
        .collect()
}

/// Returns the directory of the results. Quick results replace each other; others never do.
fn directory(options: &Options, machine: &Machine) -> Result<PathBuf> {
    let results = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("results");
    let usual = match options {
        Options {
            head_to_head: true,
            quick: true,
            ..
        } => Some("head-to-head-quick"),
        Options { quick: true, .. } => Some("quick"),
        Options {
            head_to_head: true, ..
        } => Some("head-to-head"),
        Options { pair: true, .. } => Some("pair"),
        _ => None,
    };
    let label = options.label.as_deref().or(usual);
    let name = match label {
        Some(label) => format!("{}-{label}", machine.date),
        None => machine.date.clone(),
    };
    let directory = match &options.out {
        Some(out) => out.clone(),
        None if options.quick => results.join(name),
        None => (1..)
            .map(|count| {
                if count == 1 {
                    name.clone()
                } else {
                    format!("{name}-{count}")
                }
            })
            .map(|name| results.join(name))
            .find(|path| !path.exists())
            .unwrap_or(results),
    };
    fs::create_dir_all(&directory).doing("make the directory of results")?;
    Ok(directory)
}
