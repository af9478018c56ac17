//! Compares Maglor's controller with the control planes of other meshes, on a real Kubernetes.
//!
//! The modules, in the order of a run: `options` the command line, `network` the network of a pod, `plane` what differs
//! between control planes (`maglor`, `linkerd`, `istio`), `chart` their objects, `part` their programs, `pods` the application,
//! `members` its proxies, `changes` of endpoints, `report`.

mod changes;
mod chart;
mod istio;
mod linkerd;
mod maglor;
mod members;
mod network;
mod options;
mod part;
mod plane;
mod pods;
mod report;
mod sidecar;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::{Cluster, Kubectl};

pub use options::Options;

use crate::child;
use crate::distribution::api::{Connection, Proxy};
use crate::error::{Doing, Result};
use crate::http::block_on;
use crate::report::Machine;
use crate::sys;
use members::Member;
use part::{Part, Usage};
use plane::ControlPlane;
use report::{Measured, Phase, Row, Series};

/// Time limit of a control plane's start.
const READY_WITHIN: Duration = Duration::from_secs(90);
const NAME: &str = "control-planes";

/// Runs the requested measurements; returns whether all bars were reached.
///
/// # Errors
/// There can be no cluster here, or a program does not run.
pub fn run(options: &Options) -> Result<bool> {
    sys::raise_file_limit().doing("raise the limit of open files")?;
    let planes = planes(options)?;
    let machine = Machine::look(&[]);
    let versions = versions(options)?;
    // Its modules cannot be downloaded in the network of the cluster, which leads nowhere else.
    maglor_testkit::cluster::helm(true)?;
    let cluster = Cluster::start(maglor_testkit::cluster::Options {
        name: NAME.into(),
        nodes: 1,
        simulated_nodes: 1,
        say: |line| eprintln!("{line}"),
        ..maglor_testkit::cluster::Options::default()
    })?;
    let (kubectl, of_run) = (cluster.kubectl().clone(), options.clone());
    let outcome = cluster.in_network(move || measure(&of_run, &kubectl, planes));
    cluster.stop()?;
    report::write(options, &machine, &versions, &outcome??)
}

fn planes(options: &Options) -> Result<Vec<Box<dyn ControlPlane + Send>>> {
    let mut planes: Vec<Box<dyn ControlPlane + Send>> =
        vec![Box::new(maglor::Maglor::new(options.maglor()?))];
    if let Some(programs) = options.linkerd()? {
        planes.push(Box::new(linkerd::Linkerd::new(programs)));
    }
    if let Some(programs) = options.istio()? {
        planes.push(Box::new(istio::Istio::new(programs)));
    }
    Ok(planes)
}

/// Returns the versions of the measured programs.
fn versions(options: &Options) -> Result<Vec<(&'static str, String)>> {
    let controller = options.maglor()?.controller.display().to_string();
    let mut versions = vec![("Maglor", child::output(&controller, &["--version"])?)];
    let sources = [
        ("Linkerd", &options.linkerd_source),
        ("Istio", &options.istio_source),
    ];
    for (name, source) in sources {
        let Some(source) = source else { continue };
        let source = source.display().to_string();
        let log = ["-C", &source, "log", "-1", "--format=%h, %cs"];
        let commit = child::output("git", &log);
        versions.push((name, commit.unwrap_or_else(|_| "unknown: no commit".into())));
    }
    if let Some(programs) = options.istio()? {
        versions.push(("Envoy", programs.envoy.version));
    }
    let trimmed = versions.into_iter();
    Ok(trimmed
        .map(|(name, text)| (name, text.trim().to_owned()))
        .collect())
}

/// Measures every control plane in each round, in the network of the API server.
fn measure(
    options: &Options,
    kubectl: &Kubectl,
    mut planes: Vec<Box<dyn ControlPlane + Send>>,
) -> Result<Measured> {
    network::prepare()?;
    let folder = std::env::temp_dir().join(format!("maglor-{NAME}-{}", std::process::id()));
    let mut measured = Measured::default();
    let done = block_on(async {
        for round in 0..options.rounds {
            for plane in &mut planes {
                let own = folder.join(format!("{}-{round}", plane.name()));
                fs::create_dir_all(&own).doing("make a folder")?;
                let mut stage = Stage {
                    options,
                    kubectl,
                    plane: plane.as_mut(),
                    round,
                    folder: own,
                    measured: &mut measured,
                };
                let outcome = stage.run().await;
                stage.clean()?;
                outcome?;
            }
        }
        Ok(())
    });
    if done.is_ok() {
        // Otherwise logs are kept: errors name them.
        let _ = fs::remove_dir_all(&folder);
    }
    done.map(|()| measured)
}

/// The measurement of one control plane in one round.
struct Stage<'a> {
    options: &'a Options,
    kubectl: &'a Kubectl,
    plane: &'a mut dyn ControlPlane,
    round: u32,
    folder: PathBuf,
    measured: &'a mut Measured,
}

/// The programs, and what they had used at the end of the last phase.
struct Programs {
    parts: Vec<Part>,
    before: Vec<Usage>,
    since: Instant,
}

impl Stage<'_> {
    async fn run(&mut self) -> Result<()> {
        eprintln!("round {}: {}", self.round + 1, self.plane.name());
        let kubectl = self.kubectl;
        let recipes = self.plane.install(kubectl, &self.folder)?;
        let services = pods::create(kubectl, self.plane.mark())?;
        let started = Instant::now();
        let parts = recipes.iter();
        let parts = parts.map(|recipe| Part::start(recipe, &self.folder));
        let mut programs = Programs {
            parts: parts.collect::<Result<_>>()?,
            before: Vec::new(),
            since: started,
        };
        for part in &mut programs.parts {
            part.wait_ready(started, READY_WITHIN).await?;
        }
        self.plane.ready(kubectl, &self.folder)?;
        let steps = self.options.steps();
        let first = steps.first().copied().unwrap_or_default();
        self.note(&mut programs, first, Phase::Start)?;
        let proxy = Proxy::start(kubectl)?;
        let mut api = Connection::open(proxy.address).await?;
        let mut joined: Vec<Member> = Vec::new();
        let mut outcome = Ok(());
        for step in steps {
            let step = self.step(step, &services, &mut api, &mut joined, &mut programs);
            outcome = step.await;
            if outcome.is_err() {
                break;
            }
        }
        members::leave(joined);
        outcome
    }

    /// Measures with a number of pods; earlier ones stay.
    async fn step(
        &mut self,
        count: u32,
        services: &[std::net::Ipv4Addr],
        api: &mut Connection,
        joined: &mut Vec<Member>,
        programs: &mut Programs,
    ) -> Result<()> {
        if count > 0 {
            let pods = pods::scale_to(self.kubectl, count, self.plane.sidecar().container)?;
            let new = &pods[joined.len()..];
            let members = members::join(&*self.plane, new, services, api, &self.folder).await?;
            joined.extend(members);
            self.note(programs, count, Phase::Join)?;
        }
        tokio::time::sleep(Duration::from_secs(self.options.idle)).await;
        self.note(programs, count, Phase::Idle)?;
        if let Some(observer) = joined.iter().find(|member| !member.pod.is_of(0)) {
            let changes = self.options.changes;
            let delays = changes::measure(&*self.plane, self.kubectl, api, &observer.pod, changes);
            let delays = delays.await?;
            self.measured.series.push(Series {
                plane: self.plane.name(),
                round: self.round,
                pods: count,
                delays,
            });
            self.note(programs, count, Phase::Changes)?;
        }
        Ok(())
    }

    /// Notes what the programs have used since the last phase.
    fn note(&mut self, programs: &mut Programs, pods: u32, phase: Phase) -> Result<()> {
        let took = programs.since.elapsed();
        let usages: Result<Vec<_>> = programs.parts.iter().map(Part::usage).collect();
        let usages = usages?;
        for (index, (part, usage)) in programs.parts.iter().zip(&usages).enumerate() {
            let before = programs.before.get(index).map(|usage| usage.cpu);
            self.measured.rows.push(Row {
                plane: self.plane.name(),
                round: self.round,
                pods,
                phase,
                part: part.name.clone(),
                took,
                usage: *usage,
                cpu: usage.cpu.since(before.unwrap_or_default()),
            });
        }
        programs.before = usages;
        programs.since = Instant::now();
        Ok(())
    }

    /// Removes everything of this control plane from the cluster.
    fn clean(&mut self) -> Result<()> {
        // First: webhooks whose server has ended would delay the deletion.
        for webhook in self.plane.webhooks() {
            let delete = ["delete", webhook, "--ignore-not-found"];
            self.kubectl.run(&delete)?;
        }
        for namespace in [pods::NAMESPACE, self.plane.namespace()] {
            pods::delete(self.kubectl, namespace)?;
        }
        Ok(())
    }
}
