//! Authorization of requests and connections on a listener: decisions, their metrics and log lines.
//!
//! [`policy`] makes the decisions; this module counts and logs them. Rules and their counters are prepared when the
//! configuration is applied, so that a request needs only one pass over the rules.

mod policy;

use std::sync::Arc;

use maglor_config::authorization::{self as config, Effect};
use maglor_telemetry::Counter;

pub(crate) use self::policy::{Facts, RequestFacts};
use self::policy::{Policy, Reason};
use crate::os::throttle::Throttle;
use crate::telemetry::metrics::Metrics;

/// Value of the label `rule` for the default decision.
const DEFAULT: &str = "-";

/// A listener's rules at run time.
#[derive(Debug)]
pub(crate) struct Authorization {
    policy: Policy,
    /// Name and counter of each rule, in the order of the configuration.
    rules: Vec<(Arc<str>, Counter)>,
    default: Counter,
    dry_run: bool,
    log: Throttle,
}

/// A denial, with the name of the rule that caused it.
#[derive(Clone, Debug)]
pub(crate) struct Denied(pub(crate) Arc<str>);

impl Authorization {
    /// Creates the rules of a listener.
    pub(crate) fn new(config: &config::Authorization, listener: &str, metrics: &Metrics) -> Self {
        let decision = |effect| match effect {
            Effect::Allow => "allow",
            Effect::Deny if config.dry_run => "would-deny",
            Effect::Deny => "deny",
        };
        let counted = |rule: &config::AuthorizationRule| {
            let decision = match rule.action {
                config::Action::Allow => decision(Effect::Allow),
                config::Action::Audit => "audit",
                config::Action::Deny => decision(Effect::Deny),
            };
            let counter = metrics.authorization(listener, decision, &rule.name);
            (Arc::clone(&rule.name), counter)
        };
        Self {
            policy: Policy::new(config),
            rules: config.rules.iter().map(counted).collect(),
            default: metrics.authorization(listener, decision(config.default), DEFAULT),
            dry_run: config.dry_run,
            log: Throttle::new(),
        }
    }

    /// Decides on a request or a connection.
    ///
    /// # Errors
    /// If the request or connection is denied.
    pub(crate) fn check(&self, facts: &Facts<'_>, shard: usize) -> Result<(), Denied> {
        for rule in self.policy.audited(facts) {
            if let Some((name, counter)) = self.rules.get(rule) {
                counter.inc(shard);
                self.say(facts, name, "audited");
            }
        }
        let decision = self.policy.decide(facts);
        let (name, counter) = match decision.reason {
            Reason::Default => (None, &self.default),
            Reason::Rule(rule) => match self.rules.get(rule) {
                Some((name, counter)) => (Some(name), counter),
                None => (None, &self.default),
            },
        };
        counter.inc(shard);
        if decision.effect == Effect::Allow {
            return Ok(());
        }
        let name = name.map_or(DEFAULT, |name| name);
        match self.dry_run {
            true => {
                self.say(facts, name, "would be denied");
                Ok(())
            }
            false => {
                self.say(facts, name, "denied");
                Err(Denied(name.into()))
            }
        }
    }

    fn say(&self, facts: &Facts<'_>, rule: &str, what: &str) {
        if let Some(unsaid) = self.log.allow() {
            let request = facts.request.as_ref();
            tracing::info!(
                client = facts.client.map(tracing::field::display),
                peer = facts.peer.map(maglor_identity::SpiffeId::as_str),
                port = facts.port,
                method = request.map(|request| request.method.as_str()),
                path = request.map(|request| tracing::field::display(request.path.escape_ascii())),
                rule,
                suppressed = unsaid,
                "{what} by authorization"
            );
        }
    }
}
