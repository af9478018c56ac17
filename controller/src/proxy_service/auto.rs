//! `mode: Auto`: determines whether proxies in front of a Service, or another balancing mode, are worthwhile.
//! Evaluates the reports of callers' proxies with the decision rule, which has hysteresis
//! ([`maglor_service_graph::policy_choice`]).
//!
//! The state of a governor is local to the leader. A new leader starts from the existing objects: it removes no
//! objects before it has observed that they are not worthwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maglor_balance::Time;
use maglor_service_graph::Traffic;
use maglor_service_graph::policy_choice::{
    Budget, Change, Choice, Governor, Limits, Telemetry, View,
};

use crate::graph::parts::Part;
use crate::index::facts::Key;

/// Maximum number of changes per hour, over all Services.
const CHANGES: usize = 6;
const HOUR: Duration = Duration::from_secs(3600);
/// Assumed round-trip time between two sidecars within a cluster.
const ROUND_TRIP: Duration = Duration::from_micros(500);
/// Assumed additional latency of a proxy (papers/001, Fig. 8f: 1.08 ms).
const PENALTY: Duration = Duration::from_millis(1);
/// The alternatives to `lor` in the sidecars.
const ALL: [Choice; 3] = [Choice::Bounce, Choice::Ledger, Choice::ProxyService];
/// Number of rounds for which observations are kept in the status, so that noise does not cause writes; a minute by
/// default.
const SHOWN: u32 = 6;

/// A recommendation for a Service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advice {
    /// The recommended balancing mode.
    pub choice: Choice,
    /// The observations on which the recommendation is based; `None` while there are no reports of callers.
    pub view: Option<View>,
}

/// Observations of a Service in addition to the reports of its callers.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Number of the Service's own endpoints.
    pub(super) servers: usize,
    /// Number of existing or planned proxies.
    pub(super) proxies: u32,
    /// The current balancing mode.
    pub(super) current: Choice,
    /// Whether policies of the callers' sidecars may be chosen.
    pub(super) collaborative: bool,
    /// Whether recommendations are only reported, not applied.
    pub(super) dry_run: bool,
    /// The `ProxyService` without a `targetRef` that applies to the Service; `None` if its own one applies.
    pub(super) wide: Option<Wide>,
}

/// A `ProxyService` without a `targetRef`, which applies to many Services.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Wide {
    /// Name of the `ProxyService`.
    pub(super) name: Key,
    /// Maximum number of its Services that may have proxies at a time.
    pub(super) most: u32,
}

struct Governed {
    governor: Governor,
    shown: Option<(Time, View)>,
    /// The `ProxyService` without a `targetRef` that applies to the Service; `None` if its own one applies.
    wide: Option<Key>,
}

/// The decision rules of all Services in automatic mode.
pub(super) struct Auto {
    limits: Limits,
    governed: BTreeMap<Key, Governed>,
    budget: Budget,
}

impl Auto {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            governed: BTreeMap::new(),
            budget: Budget::new(CHANGES, HOUR),
        }
    }

    /// Removes a Service that is no longer in automatic mode.
    pub(super) fn forget(&mut self, service: &Key) {
        self.governed.remove(service);
    }

    /// Returns whether a Service is in automatic mode.
    pub(super) fn governs(&self, service: &Key) -> bool {
        self.governed.contains_key(service)
    }

    /// Removes all Services except those for which `stays` is true.
    pub(super) fn retain(&mut self, stays: impl Fn(&Key) -> bool) {
        self.governed.retain(|service, _| stays(service));
    }

    /// Returns the last reported observations of a Service; `None` if there are none.
    pub(super) fn view(&self, service: &Key) -> Option<View> {
        let (_, view) = self.governed.get(service)?.shown?;
        Some(view)
    }

    /// Returns whether other Services of the same `ProxyService` already have the maximum number of proxies.
    fn is_full(&self, service: &Key, wide: &Wide) -> bool {
        self.proxied(wide, |other| other != service) >= wide.most
    }

    /// Returns whether a Service must give up its proxies because the maximum was lowered. The first Services by name
    /// keep theirs.
    fn is_over(&self, service: &Key, wide: &Wide) -> bool {
        self.proxied(wide, |other| other < service) >= wide.most
    }

    /// Returns the number of Services of a `ProxyService` that have proxies and for which `counted` is true.
    fn proxied(&self, wide: &Wide, counted: impl Fn(&Key) -> bool) -> u32 {
        let held = self.governed.iter().filter(|(service, one)| {
            let proxied = one.governor.current() == Choice::ProxyService;
            proxied && one.wide.as_ref() == Some(&wide.name) && counted(service)
        });
        u32::try_from(held.count()).unwrap_or(u32::MAX)
    }

    /// Evaluates a Service and returns the recommendation. `calls` are the reports of the Service's callers.
    pub(super) fn look(&mut self, service: &Key, now: Time, seen: &Seen, calls: Calls) -> Advice {
        let current = seen.current;
        let limits = self.limits;
        let wide = seen.wide.as_ref();
        let full = wide.is_some_and(|wide| self.is_full(service, wide));
        let over = wide.is_some_and(|wide| self.is_over(service, wide));
        let new = || Governed {
            governor: Governor::new(limits, current),
            shown: None,
            wide: None,
        };
        let governed = self.governed.entry(service.clone()).or_insert_with(new);
        let chosen = governed.governor.current();
        // A dry run applies nothing, and the requirements of sidecar policies may no longer be met.
        let undone = seen.dry_run || (chosen.is_collaborative() && !seen.collaborative);
        if undone && chosen != current {
            *governed = new();
        }
        if over && chosen == Choice::ProxyService {
            governed.governor = Governor::new(limits, Choice::Local);
        }
        governed.wide = seen.wide.as_ref().map(|wide| wide.name.clone());
        let telemetry = Telemetry {
            balancers: calls.callers,
            servers: u32::try_from(seen.servers).unwrap_or(u32::MAX),
            rps: calls.traffic.rps,
            latency: Duration::try_from_secs_f64(calls.traffic.latency_ms / 1000.0)
                .unwrap_or_default(),
            choice: current,
            round_trip: ROUND_TRIP,
            speed_variation: 0.0,
            proxies: seen.proxies.max(1),
            proxy_penalty: PENALTY,
        };
        // A change that will not be applied does not count as pending, and does not use up a change of other
        // Services.
        let proxies = !full || governed.governor.current() == Choice::ProxyService;
        let possible = |choice: &Choice| match choice.is_collaborative() {
            true => seen.collaborative,
            false => proxies,
        };
        let mut possible: Vec<Choice> = ALL.into_iter().filter(possible).collect();
        if seen.dry_run {
            possible.clear();
        }
        let looked = governed
            .governor
            .look(now, &telemetry, &possible, &mut self.budget);
        if let Some(Change {
            to,
            reason,
            predicted,
        }) = looked
        {
            tracing::info!(%service, ?to, ?reason, ?predicted, "automatic mode changed balancing");
        }
        let shown = limits.pause() * SHOWN;
        let fresh = |(at, _): &(Time, View)| now.saturating_since(*at) < shown;
        if looked.is_some() || !governed.shown.as_ref().is_some_and(fresh) {
            governed.shown = governed.governor.view().map(|view| (now, view));
        }
        Advice {
            choice: governed.governor.current(),
            view: governed.shown.map(|(_, view)| view),
        }
    }
}

/// The reports of a Service's callers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Calls {
    /// Number of calling proxies.
    pub(super) callers: u32,
    /// Total traffic of the calling proxies.
    pub(super) traffic: Traffic,
}

impl Calls {
    /// Sums the reports by called vertex; each proxy is counted once.
    pub(super) fn by_vertex<'a>(parts: impl Iterator<Item = &'a Part>) -> BTreeMap<String, Self> {
        let mut all: BTreeMap<&str, (BTreeSet<&str>, Traffic)> = BTreeMap::new();
        for part in parts.filter(|part| !part.taken && part.edge.rps > 0.0) {
            let (callers, traffic) = all.entry(&part.edge.to).or_default();
            callers.insert(&part.proxy);
            *traffic = traffic.plus(part.edge.traffic());
        }
        let calls = |(vertex, (callers, traffic)): (&str, (BTreeSet<&str>, Traffic))| {
            let callers = u32::try_from(callers.len()).unwrap_or(u32::MAX);
            (vertex.to_owned(), Self { callers, traffic })
        };
        all.into_iter().map(calls).collect()
    }
}

#[cfg(test)]
mod tests {
    use maglor_service_graph::policy_choice::Situation;

    use super::*;
    use crate::graph::Edge;

    /// Returns what twenty callers of forty servers observe at a utilization.
    fn calls(rho: f64) -> Calls {
        served(rho, Choice::Local)
    }

    /// Returns the same observations when the Service is balanced in this mode.
    fn served(rho: f64, choice: Choice) -> Calls {
        let situation = Situation {
            balancers: 20,
            servers: 40,
            rho,
            service_time: Duration::from_millis(20),
            round_trip: ROUND_TRIP,
            speed_variation: 0.0,
            proxies: 1,
            proxy_penalty: PENALTY,
        };
        let predicted = situation.decide().unwrap().of(choice).unwrap();
        Calls {
            callers: 20,
            traffic: Traffic {
                rps: situation.rps(),
                latency_ms: predicted.mean.as_secs_f64() * 1000.0,
                ..Traffic::default()
            },
        }
    }

    const SEEN: Seen = Seen {
        servers: 40,
        proxies: 1,
        current: Choice::Local,
        collaborative: false,
        dry_run: false,
        wide: None,
    };

    /// Returns the last recommendation of ten minutes. Later the governor would notice that nothing has improved.
    fn advised(seen: &Seen, calls: Calls) -> Advice {
        let (mut auto, service) = (Auto::new(Limits::default()), Key::new("shop", "web"));
        let looks = (0..60).map(|look| {
            let now = Time::ZERO + Duration::from_secs(10 * look);
            auto.look(&service, now, seen, calls)
        });
        looks.last().unwrap()
    }

    #[test]
    fn proxies_are_advised_where_they_pay() {
        let busy = advised(&SEEN, calls(0.75));
        assert_eq!(busy.choice, Choice::ProxyService);
        let view = busy.view.unwrap();
        assert_eq!(view.best, Choice::Ledger, "of all that there is");
        assert!((view.rho - 0.75).abs() < 0.3, "{view:?}");
        assert_eq!(advised(&SEEN, calls(0.1)).choice, Choice::Local);
    }

    #[test]
    fn policies_of_sidecars_are_advised_where_they_may_be() {
        let meshed = Seen {
            collaborative: true,
            ..SEEN
        };
        assert_eq!(advised(&meshed, calls(0.75)).choice, Choice::Ledger);
        assert_eq!(advised(&meshed, calls(0.1)).choice, Choice::Local);
    }

    #[test]
    fn what_sidecars_cannot_do_any_more_is_forgotten() {
        let (mut auto, service) = (Auto::new(Limits::default()), Key::new("shop", "web"));
        let there = Seen {
            current: Choice::Ledger,
            collaborative: true,
            ..SEEN
        };
        let advice = auto.look(&service, Time::ZERO, &there, calls(0.75));
        assert_eq!(advice.choice, Choice::Ledger);
        // The operator has reverted the change.
        let advice = auto.look(&service, Time::ZERO, &SEEN, calls(0.75));
        assert_eq!(advice.choice, Choice::Local);
    }

    #[test]
    fn what_is_only_asked_is_answered_and_not_done() {
        let dry = Seen {
            dry_run: true,
            ..SEEN
        };
        let advice = advised(&dry, calls(0.75));
        assert_eq!(advice.choice, Choice::Local);
        let view = advice.view.unwrap();
        assert_eq!(view.best, Choice::Ledger);
        assert!((view.rho - 0.75).abs() < 0.01, "{view:?}");
        assert!(view.predicted < view.measured);
        assert!(view.predicted < view.proxied && view.proxied < view.local);
    }

    #[test]
    fn what_is_there_stays_while_nothing_is_known() {
        let there = Seen {
            current: Choice::ProxyService,
            ..SEEN
        };
        let advice = advised(&there, Calls::default());
        assert_eq!((advice.choice, advice.view), (Choice::ProxyService, None));
    }

    /// A resource for many Services adds proxies to the configured number of them, and to others when these no
    /// longer need them.
    #[test]
    fn no_more_services_have_proxies_than_there_is_room_for() {
        let mut auto = Auto::new(Limits::default());
        let services = ["a", "b", "c"].map(|name| Key::new("shop", name));
        let mut current = [Choice::Local; 3];
        let mut minutes = 0;
        let mut pass = |auto: &mut Auto, current: &mut [Choice; 3], rho: [f64; 3]| {
            for _ in 0..30 {
                minutes += 1;
                let now = Time::ZERO + Duration::from_secs(60 * minutes);
                for (at, service) in services.iter().enumerate() {
                    let seen = Seen {
                        current: current[at],
                        wide: Some(Wide {
                            name: Key::new("shop", "all"),
                            most: 2,
                        }),
                        ..SEEN
                    };
                    current[at] = auto
                        .look(service, now, &seen, served(rho[at], current[at]))
                        .choice;
                }
            }
        };
        let proxied = |current: &[Choice; 3]| {
            let is = |choice: &&Choice| **choice == Choice::ProxyService;
            current.iter().filter(is).count()
        };
        pass(&mut auto, &mut current, [0.75; 3]);
        assert_eq!(proxied(&current), 2, "{current:?}");
        // One of the Services with proxies gets few calls from now on.
        let first = current.iter().position(|one| *one == Choice::ProxyService);
        let mut rho = [0.75; 3];
        rho[first.unwrap()] = 0.02;
        for _ in 0..4 {
            pass(&mut auto, &mut current, rho);
        }
        assert_eq!(proxied(&current), 2, "{current:?}");
        assert_eq!(current[first.unwrap()], Choice::Local);
    }

    /// Lowering the maximum also affects Services that already have proxies.
    #[test]
    fn what_there_is_no_room_for_any_more_goes() {
        let mut auto = Auto::new(Limits::default());
        let services = ["a", "b", "c"].map(|name| Key::new("shop", name));
        let mut current = [Choice::ProxyService; 3];
        for (minutes, most) in [(0, 3), (1, 2), (2, 2), (3, 0)] {
            let now = Time::ZERO + Duration::from_secs(60 * minutes);
            for (service, current) in services.iter().zip(&mut current) {
                let name = Key::new("shop", "all");
                let seen = Seen {
                    current: *current,
                    wide: Some(Wide { name, most }),
                    ..SEEN
                };
                let calls = served(0.75, *current);
                *current = auto.look(service, now, &seen, calls).choice;
            }
            let proxied = current.map(|one| one == Choice::ProxyService);
            let expected = [0, 1, 2].map(|at| at < most);
            assert_eq!(proxied, expected, "minute {minutes}");
        }
    }

    #[test]
    fn callers_are_counted_once_and_their_requests_added_up() {
        let part = |proxy: &str, to: &str, rps, taken| Part {
            proxy: proxy.to_owned(),
            taken,
            edge: Edge {
                to: to.to_owned(),
                rps,
                latency_ms: 10.0,
                ..Edge::default()
            },
            ..Part::default()
        };
        let parts = [
            part("shop/a", "shop/web", 3.0, false),
            part("shop/a", "shop/cart", 9.0, false),
            part("shop/b", "shop/web", 4.0, false),
            part("shop/c", "shop/web", 0.0, false),
            part("shop/web-0", "shop/web", 7.0, true),
        ];
        let all = Calls::by_vertex(parts.iter());
        assert_eq!(all.keys().collect::<Vec<_>>(), ["shop/cart", "shop/web"]);
        let calls = all["shop/web"];
        assert_eq!((calls.callers, calls.traffic.rps), (2, 7.0));
        assert!((calls.traffic.latency_ms - 10.0).abs() < 1e-9);
    }
}
