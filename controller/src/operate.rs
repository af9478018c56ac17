//! The common loop of the policy operators: periodic passes while this replica is the leader, listing policies, and
//! writing their statuses.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use crate::api_server::is;
use crate::lease::Term;
use crate::status::{FIELD_MANAGER, patch_of};
use crate::writes::{Manager, Seen};

/// Poll interval.
const TICK: Duration = Duration::from_secs(2);
/// Poll interval without policies, and with nothing in progress.
const IDLE: Duration = Duration::from_secs(10);

/// An operator that carries out policies periodically.
pub(crate) trait Operator {
    /// The operator's name, for log messages.
    const NAME: &'static str;

    /// Returns the current term.
    fn term(&self) -> &watch::Receiver<Term>;

    /// Resets state at the begin of a term: another replica may have written meanwhile.
    fn begin_term(&mut self);

    /// Takes all steps that are possible now; returns whether to call it again soon.
    fn look(&mut self) -> impl Future<Output = Result<bool, kube::Error>> + Send;

    /// Returns whether this replica may write.
    fn writes(&self) -> bool {
        self.term().borrow().holds(Instant::now())
    }
}

/// Runs an operator while this replica holds the Lease, as long as the process runs.
pub(crate) async fn run<O: Operator>(mut operator: O) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut led = None;
    let mut rests = Instant::now();
    loop {
        tick.tick().await;
        let term = *operator.term().borrow();
        if !term.holds(Instant::now()) {
            led = None;
            continue;
        }
        if led.replace(term.number()) != Some(term.number()) {
            operator.begin_term();
            rests = Instant::now();
        }
        if Instant::now() < rests {
            continue;
        }
        match operator.look().await {
            Ok(true) => {}
            Ok(false) => rests = Instant::now() + IDLE,
            Err(error) => tracing::warn!(%error, "{}: reconciliation failed; retrying", O::NAME),
        }
    }
}

/// Returns the policies of a kind, the oldest first; none if the kind is not defined.
pub(crate) async fn policies<K>(client: &Client) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let mut policies = match api.list(&ListParams::default()).await {
        Ok(list) => list.items,
        Err(error) if is(&error, 404) => Vec::new(),
        Err(error) => return Err(error),
    };
    policies.retain(|policy| policy.meta().deletion_timestamp.is_none());
    let age = |policy: &K| {
        let meta = policy.meta();
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        (created, meta.namespace.clone(), meta.name.clone())
    };
    policies.sort_by_key(age);
    Ok(policies)
}

/// Writes a policy's status if it differs from `before`, for the generation that was observed.
pub(crate) async fn report<K, S>(
    api: &Api<K>,
    policy: &K,
    before: Option<&S>,
    status: &S,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    S: Clone + Default + Serialize,
{
    let meta = policy.meta();
    let name = meta.name.clone().unwrap_or_default();
    let before = json!(before.cloned().unwrap_or_default());
    let Some(patch) = patch_of(&K::kind(&()), &name, &before, json!(status)) else {
        return Ok(());
    };
    let (by, seen) = (Manager(FIELD_MANAGER), Seen::of(meta));
    match by.apply_status(api, &name, patch, &seen).await {
        Err(error) if is(&error, 404) || is(&error, 409) => Ok(()),
        written => written.map(|_| ()),
    }
}
