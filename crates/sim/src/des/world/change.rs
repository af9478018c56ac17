//! What changes by itself: antagonists and disturbances.

use super::{World, nanos};
use crate::des::scenario::{Change, Disturbance, Scenario};
use crate::des::tournament::NEVER;

/// The changes to come.
#[derive(Debug)]
pub(super) struct Changes {
    /// By time, the last one first.
    disturbances: Vec<Disturbance>,
    /// When the antagonist moves on.
    turn_at: u64,
    turn: u32,
}

impl Changes {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let mut disturbances = scenario.disturbances.clone();
        // Stable, and then reversed: of equal times the first given is taken first.
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

impl World<'_> {
    pub(super) fn change(&mut self) {
        if self.changes.turn_at <= self.now {
            return self.move_antagonist();
        }
        let Some(disturbance) = self.changes.disturbances.pop() else {
            return;
        };
        for tier in &mut self.tiers {
            match disturbance.change {
                Change::Leave(server) => tier.set_absent(server, true),
                Change::Return(server) => tier.set_absent(server, false),
                Change::LedgerDies(group) => {
                    let hosts = tier.help.as_mut().map(|help| &mut help.hosts);
                    if let Some(host) = hosts.and_then(|hosts| hosts.get_mut(group as usize)) {
                        host.alive = false;
                    }
                }
                Change::LedgerRestarts(group) => {
                    if let Some(help) = &mut tier.help {
                        help.restart(group, &mut self.chance.network);
                    }
                }
            }
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
