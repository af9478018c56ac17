//! Leader election with a Lease (`coordination.k8s.io/v1`): only the leader writes. Every replica serves proxies,
//! which needs no Lease.
//!
//! As in client-go's leader election, clocks of different machines are not compared. A replica takes over a Lease
//! that has not changed for the Lease's duration, by the replica's own clock. A holder that cannot renew the Lease
//! stops writing well before that, by its own clock. Replacing the object is conditional on its `resourceVersion`, so
//! that only one of several replicas wins.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a Lease is valid without being renewed.
const DURATION: Duration = Duration::from_secs(15);
/// How long the holder may write after it has renewed the Lease. A write that was sent within this time arrives
/// before another replica holds the Lease.
const WRITES: Duration = Duration::from_secs(10);
/// Interval at which the Lease of another replica is read, and at which a request is repeated after an error.
const PERIOD: Duration = Duration::from_secs(2);
/// Interval at which the holder renews the Lease. A renewal that times out leaves time for another one within
/// [`WRITES`].
const RENEWAL: Duration = Duration::from_secs(4);
/// Pause of the holder after a failed renewal.
const RETRY: Duration = Duration::from_secs(1);
/// Timeout of a request about the Lease, and of any write of its holder.
pub(crate) const REQUEST: Duration = Duration::from_secs(4);

/// The end of a term by two clocks. The monotonic clock stops while a machine is suspended, so another replica may
/// hold the Lease when it resumes. The system clock continues in that time; if it is set forward, the term ends
/// early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Until {
    steady: Instant,
    system: SystemTime,
}

impl Until {
    /// Returns the end of a term that lasts for `time` from the moment `asked`.
    fn after(asked: (Instant, SystemTime), time: Duration) -> Self {
        Self {
            steady: asked.0 + time,
            system: asked.1 + time,
        }
    }

    fn is_to_come(&self, now: Instant, system: SystemTime) -> bool {
        now < self.steady && system < self.system
    }
}

/// The right of this replica to write.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Term {
    until: Option<Until>,
    /// How often the holder of the Lease has changed, which identifies the term.
    transitions: i32,
}

impl Term {
    /// Returns whether a write may begin at `now`.
    #[must_use]
    pub fn holds(&self, now: Instant) -> bool {
        self.holds_at(now, SystemTime::now())
    }

    fn holds_at(&self, now: Instant, system: SystemTime) -> bool {
        self.until
            .is_some_and(|until| until.is_to_come(now, system))
    }

    /// Returns how long the term will last if the Lease is not renewed.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| {
            let system = until.system.duration_since(SystemTime::now());
            let steady = until.steady.saturating_duration_since(Instant::now());
            steady.min(system.unwrap_or_default())
        })
    }

    /// Returns a term of some seconds, for tests.
    #[cfg(test)]
    pub(crate) fn of_seconds(seconds: u64) -> Self {
        let now = (Instant::now(), SystemTime::now());
        Self {
            until: Some(Until::after(now, Duration::from_secs(seconds))),
            transitions: 1,
        }
    }

    /// Returns a term of a day, for tests.
    #[cfg(test)]
    pub(crate) fn held() -> Self {
        Self::of_seconds(86_400)
    }

    /// Returns the number of the term, which is greater than that of any earlier term.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.transitions
    }
}

/// The next action for a Lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Decision {
    Create,
    Renew,
    TakeOver,
    Wait,
}

/// The last observed change of another replica's lease.
#[derive(Debug, Default)]
struct Observed {
    version: Option<String>,
    at: Option<Instant>,
}

impl Observed {
    fn decide(&mut self, me: &str, lease: Option<&Lease>, now: Instant) -> Decision {
        let Some(lease) = lease else {
            return Decision::Create;
        };
        let spec = lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        match holder {
            None | Some("") => return Decision::TakeOver,
            Some(holder) if holder == me => return Decision::Renew,
            Some(_) => {}
        }
        let version = &lease.metadata.resource_version;
        let at = match self.at {
            Some(at) if self.version == *version => at,
            _ => {
                self.version.clone_from(version);
                *self.at.insert(now)
            }
        };
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(DURATION, Duration::from_secs);
        match now.duration_since(at) > duration {
            true => Decision::TakeOver,
            false => Decision::Wait,
        }
    }
}

/// Holds or acquires the lease until `stop` is true; then releases it.
pub async fn hold(
    client: Client,
    namespace: &str,
    name: &str,
    me: &str,
    term: watch::Sender<Term>,
    mut stop: watch::Receiver<bool>,
) {
    let api: Api<Lease> = Api::namespaced(client, namespace);
    let mut observed = Observed::default();
    // The Lease as this replica has last written it.
    let mut held: Option<Lease> = None;
    loop {
        let asked = (Instant::now(), SystemTime::now());
        let known = held.take();
        let step = step(&api, (name, me), known, &mut observed);
        let outcome = tokio::time::timeout(REQUEST, step).await;
        let outcome = outcome.map_err(|_| "timeout".to_owned());
        let pause = match outcome.and_then(|done| done.map_err(|error| error.to_string())) {
            Ok(lease) => {
                account(lease.as_ref(), asked, &term);
                held = lease;
                held.as_ref().map_or(PERIOD, |_| RENEWAL)
            }
            Err(error) => {
                tracing::warn!(lease = name, error, "cannot renew the lease");
                RETRY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    let held = term.send_replace(Term::default());
    if held.holds(Instant::now()) {
        release_own(&api, name, me).await;
    }
}

async fn release_own(api: &Api<Lease>, name: &str, me: &str) {
    if let Err(error) = release_lease(api, name, me).await {
        tracing::warn!(lease = name, %error, "cannot release the lease");
    }
}

/// Publishes the term that results from an election step that began at `asked`.
fn account(lease: Option<&Lease>, asked: (Instant, SystemTime), term: &watch::Sender<Term>) {
    let before = *term.borrow();
    let Some(lease) = lease else {
        if before.until.is_some() {
            tracing::info!("another replica is the leader");
            term.send_replace(Term::default());
        }
        return;
    };
    let spec = lease.spec.as_ref();
    let transitions = spec.and_then(|spec| spec.lease_transitions);
    let held = Term {
        until: Some(Until::after(asked, WRITES)),
        transitions: transitions.unwrap_or(0),
    };
    if !before.holds(asked.0) {
        tracing::info!(term = held.transitions, "this replica is the leader");
    }
    term.send_replace(held);
}

/// Renews the Lease or takes it over if possible. Returns the Lease if this replica now holds it. A Lease that is
/// `known` from the last renewal is not read, unless it has changed since then.
async fn step(
    api: &Api<Lease>,
    (name, me): (&str, &str),
    known: Option<Lease>,
    observed: &mut Observed,
) -> Result<Option<Lease>, kube::Error> {
    if known.is_some() {
        let lease = renewed(known, name, me);
        match api.replace(name, &PostParams::default(), &lease).await {
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {}
            written => return written.map(Some),
        }
    }
    let lease = api.get_opt(name).await?;
    let decision = observed.decide(me, lease.as_ref(), Instant::now());
    let written = match decision {
        Decision::Wait => return Ok(None),
        Decision::Create => {
            let lease = renewed(None, name, me);
            api.create(&PostParams::default(), &lease).await
        }
        Decision::Renew | Decision::TakeOver => {
            let lease = renewed(lease, name, me);
            api.replace(name, &PostParams::default(), &lease).await
        }
    };
    match written {
        Ok(lease) => Ok(Some(lease)),
        // Another replica was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the Lease as its holder writes it.
fn renewed(lease: Option<Lease>, name: &str, me: &str) -> Lease {
    let now = MicroTime(Timestamp::now());
    let mut lease = lease.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    let before = lease.spec.take().unwrap_or_default();
    let mine = before.holder_identity.as_deref() == Some(me);
    lease.spec = Some(LeaseSpec {
        acquire_time: match mine {
            true => before.acquire_time,
            false => Some(now.clone()),
        },
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        lease_transitions: Some(before.lease_transitions.unwrap_or(0) + i32::from(!mine)),
        renew_time: Some(now),
        ..LeaseSpec::default()
    });
    lease
}

async fn release_lease(api: &Api<Lease>, name: &str, me: &str) -> Result<(), kube::Error> {
    let Some(mut lease) = api.get_opt(name).await? else {
        return Ok(());
    };
    let spec = lease.spec.get_or_insert_default();
    if spec.holder_identity.as_deref() == Some(me) {
        spec.holder_identity = Some(String::new());
        api.replace(name, &PostParams::default(), &lease).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, version: &str) -> Lease {
        let mut lease = renewed(None, "l", holder);
        lease.metadata.resource_version = Some(version.to_owned());
        lease
    }

    #[test]
    fn a_lease_is_taken_over_when_it_has_not_changed_for_its_duration() {
        let mut observed = Observed::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut decide = |lease: Option<&Lease>, seconds| observed.decide("me", lease, at(seconds));
        assert_eq!(decide(None, 0), Decision::Create);
        assert_eq!(decide(Some(&lease("me", "1")), 0), Decision::Renew);
        assert_eq!(decide(Some(&lease("", "1")), 0), Decision::TakeOver);
        assert_eq!(decide(Some(&lease("other", "2")), 0), Decision::Wait);
        assert_eq!(decide(Some(&lease("other", "2")), 15), Decision::Wait);
        // The Lease was renewed, so the time starts anew.
        assert_eq!(decide(Some(&lease("other", "3")), 20), Decision::Wait);
        assert_eq!(decide(Some(&lease("other", "3")), 35), Decision::Wait);
        assert_eq!(decide(Some(&lease("other", "3")), 36), Decision::TakeOver);
    }

    #[test]
    fn each_holder_has_a_term_of_its_own() {
        let first = renewed(None, "l", "a");
        let transitions = |lease: &Lease| lease.spec.as_ref().unwrap().lease_transitions;
        assert_eq!(transitions(&first), Some(1));
        let again = renewed(Some(first.clone()), "l", "a");
        assert_eq!(transitions(&again), Some(1));
        let other = renewed(Some(again), "l", "b");
        assert_eq!(transitions(&other), Some(2));
    }

    #[test]
    fn writing_ends_before_the_lease() {
        let (now, system) = (Instant::now(), SystemTime::now());
        let term = Term {
            until: Some(Until::after((now, system), WRITES)),
            transitions: 1,
        };
        assert!(term.holds(now));
        assert!(!term.holds(now + WRITES));
        // The machine was suspended: only the system clock has continued.
        let passed = WRITES / 2;
        assert!(term.holds_at(now + passed, system + passed));
        assert!(!term.holds_at(now + passed, system + WRITES));
        // The clock was set back; the monotonic clock was not.
        assert!(!term.holds_at(now + WRITES, system - WRITES));
        assert!(WRITES + REQUEST < DURATION);
        assert!(!Term::default().holds(now));
    }
}
