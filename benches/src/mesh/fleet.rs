//! The processes of a case: proxies and the application. They are killed when their guard is
//! dropped.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use maglor_testkit::app::{Counts, WorkModel};
use tokio::time::sleep;

use super::plan::{Duty, INBOUND, OUTBOUND, Plan, Process};
use super::{configuration, redirected};
use crate::child::Guarded;
use crate::error::{Doing, Error, Result};
use crate::forward;
use crate::http;
use crate::peer::{LinkerdControl, Listeners, Peer, Scratch, Subject};
use crate::ports;
use crate::procfs::{self, CpuTime, Memory, Share};

/// The time limit for the start of all proxies of a case together: 80 of them start on one
/// processor.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// The assignment of processors.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) app: Vec<usize>,
    pub(super) proxies: Vec<usize>,
}

/// A started case.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) plan: Plan,
    proxies: Vec<Guarded>,
    apps: Vec<Guarded>,
    /// The control plane of proxies that cannot run without.
    _control: Option<LinkerdControl>,
    /// Dropped last: it is the working directory of the processes.
    scratch: Scratch,
}

/// The processor time of the parts of a case.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) app: CpuTime,
    pub(super) proxies: CpuTime,
    pub(super) harness: CpuTime,
}

impl Used {
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            app: self.app.since(earlier.app),
            proxies: self.proxies.since(earlier.proxies),
            harness: self.harness.since(earlier.harness),
        }
    }
}

impl Fleet {
    /// Starts everything and waits until all listen.
    pub(super) async fn start(
        plan: Plan,
        model: &WorkModel,
        peer: &Peer,
        places: &Places,
        seed: u64,
    ) -> Result<Self> {
        let scratch = Scratch::new("mesh")?;
        let apps = 0..plan.controls.len();
        let mut apps = apps
            .map(|process| start_app(&plan, process, model, &scratch, places, seed))
            .collect::<Result<Vec<_>>>()?;
        let control = match peer.subject {
            Subject::Linkerd => {
                let services = redirected::services(&plan);
                let mesh = plan.credentials.is_some();
                Some(LinkerdControl::start(scratch.path(), &services, mesh)?)
            }
            _ => None,
        };
        let certificates = plan.credentials.as_ref().map(|_| scratch.path());
        if let Some(credentials) = &plan.credentials {
            credentials.write(scratch.path())?;
        }
        let mut proxies = Vec::with_capacity(plan.processes.len());
        for (index, process) in plan.processes.iter().enumerate() {
            let own = plan.central.as_ref();
            let own = own.filter(|_| process.duty == Duty::ProxyService);
            let peer = own.unwrap_or(peer);
            let mut command = match &control {
                Some(control) => linkerd(control, &peer.binary, process)?,
                None => {
                    let yaml = file(&scratch, index, "yaml");
                    command(peer, process, certificates, &yaml)?
                }
            };
            proxies.push(start_proxy(&mut command, process, index, &scratch, places)?);
        }
        for app in &mut apps {
            app.wait_ready()?;
        }
        let mut fleet = Self {
            plan,
            proxies,
            apps,
            _control: control,
            scratch,
        };
        fleet.wait_listening().await?;
        Ok(fleet)
    }

    async fn wait_listening(&mut self) -> Result<()> {
        let began = Instant::now();
        for (index, process) in self.plan.processes.iter().enumerate() {
            for listener in &process.listeners {
                while tokio::net::TcpStream::connect(listener.address)
                    .await
                    .is_err()
                {
                    let guarded = &mut self.proxies[index];
                    let status = guarded.ended()?;
                    if status.is_some() || began.elapsed() > PATIENCE {
                        let log = fs::read_to_string(file(&self.scratch, index, "log"));
                        let log = log.unwrap_or_default();
                        let last: Vec<_> = log.lines().rev().take(5).collect();
                        let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                        let detail = format!("ended: {status:?}\n{last}");
                        return Err(Error::late(format!("proxy {index}"), began, detail));
                    }
                    sleep(POLL).await;
                }
            }
        }
        Ok(())
    }

    /// Returns the counts of the application.
    pub(super) async fn counts(&self) -> Result<Vec<Counts>> {
        let mut all = Vec::new();
        for &control in &self.plan.controls {
            let text = http::text(control, "GET", "/counts", String::new()).await?;
            let counts: Vec<Counts> = serde_json::from_str(&text)
                .map_err(|error| Error::parse("counts of the application", error.to_string()))?;
            all.extend(counts);
        }
        Ok(all)
    }

    /// Resets the counts of the application.
    pub(super) async fn reset_counts(&self) -> Result<()> {
        for &control in &self.plan.controls {
            http::text(control, "DELETE", "/counts", String::new()).await?;
        }
        Ok(())
    }

    /// Returns the processor time since the start.
    pub(super) fn used(&self) -> Result<Used> {
        Ok(Used {
            app: procfs::cpu(&pids(&self.apps))?,
            proxies: procfs::cpu(&self.pids())?,
            harness: procfs::cpu(&[std::process::id()])?,
        })
    }

    /// Returns the processor time of each Proxy-Service since the start, with the host that it
    /// serves.
    pub(super) fn central(&self) -> Result<Vec<(String, CpuTime)>> {
        let both = self.plan.processes.iter().zip(&self.proxies);
        let central = both.filter(|(process, _)| process.duty == Duty::ProxyService);
        let used = |(process, guarded): (&Process, &Guarded)| {
            Ok((process.host.clone(), procfs::cpu(&[guarded.pid()])?))
        };
        central.map(used).collect()
    }

    /// Returns the present memory of all proxies together.
    pub(super) fn memory(&self) -> Result<Memory> {
        procfs::memory_sum(&self.pids())
    }

    /// Returns the present share of memory of all proxies together.
    pub(super) fn share(&self) -> Result<Share> {
        procfs::share(&self.pids())
    }

    /// Returns the number of proxies.
    pub(super) fn proxies(&self) -> usize {
        self.proxies.len()
    }

    fn pids(&self) -> Vec<u32> {
        pids(&self.proxies)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for guarded in &self.proxies {
            guarded.ask_to_end();
        }
    }
}

fn file(scratch: &Scratch, index: usize, end: &str) -> PathBuf {
    scratch.path().join(format!("proxy-{index}.{end}"))
}

fn pids<'a>(processes: impl IntoIterator<Item = &'a Guarded>) -> Vec<u32> {
    processes.into_iter().map(Guarded::pid).collect()
}

/// Starts one of the application's processes.
fn start_app(
    plan: &Plan,
    process: usize,
    model: &WorkModel,
    scratch: &Scratch,
    places: &Places,
    seed: u64,
) -> Result<Guarded> {
    let json = |what: &str, value: serde_json::Result<String>| -> Result<String> {
        let value = value.map_err(|error| Error::parse(what, error.to_string()))?;
        let file = scratch.path().join(format!("{what}-{process}.json"));
        fs::write(&file, value).doing(format!("write {what}.json"))?;
        Ok(file.display().to_string())
    };
    let arguments = [
        (
            "--workmodel",
            json("workmodel", serde_json::to_string(model))?,
        ),
        (
            "--deployment",
            json("deployment", serde_json::to_string(&plan.part(process)))?,
        ),
        ("--control", plan.controls[process].to_string()),
        // Different random times in each of them.
        (
            "--seed",
            seed.wrapping_add((process as u64) << 32).to_string(),
        ),
    ];
    let arguments = arguments
        .map(|(flag, value)| [flag.to_owned(), value])
        .concat();
    Guarded::role_on("app", &arguments, &places.app)
}

fn start_proxy(
    command: &mut Command,
    process: &Process,
    index: usize,
    scratch: &Scratch,
    places: &Places,
) -> Result<Guarded> {
    let log = fs::File::create(file(scratch, index, "log")).doing("make a log file")?;
    scratch.run_in(command, &log)?;
    process.group.map(|group| command.gid(group));
    Guarded::start_on(format!("proxy {index}"), command, &places.proxies)
}

/// Returns the command of a proxy with a configuration file.
fn command(
    peer: &Peer,
    process: &Process,
    certificates: Option<&Path>,
    yaml: &Path,
) -> Result<Command> {
    if peer.subject == Subject::Bare {
        return Ok(forward::command(&peer.binary, process.first_destinations()));
    }
    let text = configuration::text(peer.subject, process, certificates);
    fs::write(yaml, text).doing("write a configuration")?;
    Ok(peer.command(yaml))
}

/// Returns the command of linkerd2-proxy; a side that the process does not need has an address, too.
fn linkerd(control: &LinkerdControl, binary: &Path, process: &Process) -> Result<Command> {
    let address = |name| {
        let own = process.listeners.iter().find(|one| one.name == name);
        own.map_or_else(ports::free, |one| Ok(one.address))
    };
    let listeners = Listeners {
        outbound: address(OUTBOUND)?,
        inbound: address(INBOUND)?,
        admin: process.admin,
    };
    Ok(control.command(binary, listeners))
}

/// Returns why `peer` rejects a policy, in one line; `None` if it accepts it.
pub(super) fn refusal(peer: &Peer, policy: &str) -> Result<Option<String>> {
    let scratch = Scratch::new("policy")?;
    let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let process = Process {
        duty: Duty::Entrance,
        host: String::new(),
        group: None,
        admin: address(1),
        listeners: vec![super::plan::Listener {
            name: OUTBOUND,
            address: address(2),
            service: None,
            routes: vec![super::plan::Route {
                host: "*".into(),
                policy: policy.into(),
                endpoints: vec![address(3)],
            }],
            peers: None,
        }],
    };
    let yaml = scratch.path().join("policy.yaml");
    let text = configuration::text(Subject::Maglor, &process, None);
    fs::write(&yaml, text).doing("write a policy")?;
    check(&peer.binary, &yaml)
}

fn check(binary: &Path, yaml: &Path) -> Result<Option<String>> {
    let output = Command::new(binary)
        .arg("--check")
        .arg("--config")
        .arg(yaml)
        .output();
    let output = output.doing("ask the proxy about a policy")?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.contains("error"));
    let reason = line.and_then(|line| line.split("error: ").nth(1));
    Ok(Some(reason.unwrap_or("it does not say why").to_owned()))
}
