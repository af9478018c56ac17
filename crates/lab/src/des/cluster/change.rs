//! Scheduled changes: antagonists and disturbances.

use super::{Cluster, nanos};
use crate::des::post::Mail;
use crate::des::scenario::{Change, Disturbance, Scenario};
use crate::des::tournament::NEVER;

/// The pending changes.
#[derive(Debug)]
pub(super) struct Changes {
    /// The disturbances in reverse order of time.
    disturbances: Vec<Disturbance>,
    /// The time when the antagonist moves to other servers.
    turn_at: u64,
    turn: u32,
}

impl Changes {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let mut disturbances = scenario.disturbances.clone();
        // Stable, and then reversed: of equal times the first given comes first.
        disturbances.sort_by_key(|disturbance| disturbance.at);
        disturbances.reverse();
        Self {
            disturbances,
            turn_at: scenario.antagonist.map_or(NEVER, |_| 0),
            turn: 0,
        }
    }

    #[inline]
    pub(super) fn next_at(&self) -> u64 {
        let disturbed = self.disturbances.last();
        self.turn_at
            .min(disturbed.map_or(NEVER, |next| nanos(next.at)))
    }
}

impl Cluster<'_> {
    pub(super) fn change(&mut self) {
        if self.changes.turn_at <= self.now {
            return self.move_antagonist();
        }
        let Some(disturbance) = self.changes.disturbances.pop() else {
            return;
        };
        for service in 0..self.tiers.len() as u16 {
            match disturbance.change {
                Change::Leave(server) => self.set_absent(service, server, true),
                Change::Return(server) => self.set_absent(service, server, false),
                other => self.change_help(service, other),
            }
        }
    }

    /// Removes or returns a server, which balancers and ledgers are informed of with the scenario's
    /// lag.
    fn set_absent(&mut self, service: u16, server: u32, absent: bool) {
        let (lag, now) = (nanos(self.scenario.view_lag), self.time());
        let tier = &mut self.tiers[usize::from(service)];
        if let Some(help) = tier.help.as_mut().filter(|_| !absent) {
            help.joins(server, now);
        }
        if lag == 0 {
            return tier.set_absent(server, absent, now);
        }
        let rng = &mut self.chance.network;
        let mut later = || self.now + (rng.unit() * lag as f64) as u64;
        for balancer in 0..tier.balancers.len() as u32 {
            let mail = Mail::View {
                service,
                balancer,
                server,
                absent,
            };
            self.post.remind(later(), mail);
        }
        let mail = Mail::Membership {
            service,
            server,
            absent,
        };
        self.post.remind(later(), mail);
    }

    fn change_help(&mut self, service: u16, change: Change) {
        let now = self.time();
        let Some(help) = &mut self.tiers[usize::from(service)].help else {
            return;
        };
        match change {
            Change::Leave(_) | Change::Return(_) => {}
            Change::LedgerDies(group) => {
                if let Some(host) = help.hosts.get_mut(group as usize) {
                    host.alive = false;
                }
            }
            Change::LedgerRestarts(group) => help.restart(group, now, &mut self.chance.network),
            Change::LedgerResumes(group) => {
                let host = help.hosts.get_mut(group as usize);
                let waiting = host.and_then(|host| host.stalled.take());
                for mail in waiting.into_iter().flatten() {
                    self.deliver(mail);
                }
            }
            Change::LedgerStalls(group) => {
                if let Some(host) = help.hosts.get_mut(group as usize) {
                    host.stalled.get_or_insert_default();
                }
            }
            Change::Reporting(server) => help.silent[server as usize] = false,
            Change::Silent(server) => help.silent[server as usize] = true,
        }
    }

    fn move_antagonist(&mut self) {
        let Some(antagonist) = self.scenario.antagonist else {
            return;
        };
        self.changes.turn += 1;
        self.changes.turn_at = self.now + nanos(antagonist.lasts);
        let servers = self.scenario.servers;
        for (place, server) in self.servers.iter_mut().enumerate() {
            let number = place as u32 % servers;
            let nominal = self.scenario.speed(number);
            let hit = (number + self.changes.turn).is_multiple_of(antagonist.one_in);
            let speed = if hit {
                nominal * antagonist.factor
            } else {
                nominal
            };
            if (speed - server.speed()).abs() > f64::EPSILON {
                server.set_speed(self.now, speed);
                self.departures.set(place as u32, server.next_at());
            }
        }
    }
}
