//! The script that every client of our controller must pass.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::ensure;

use super::super::report::Report;
use super::controller::Controller;
use super::{Asker, took, until};

/// The number of requests per measurement.
const MANY: u32 = 200;

/// The number of responses by server.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) answered: BTreeMap<SocketAddr, u32>,
    pub(super) failed: u32,
    /// The reason of the last failure.
    pub(super) why: String,
}

/// A client that balances.
pub(super) trait Peer {
    /// Sends requests, and returns which servers responded.
    fn requests(&mut self, count: u32) -> anyhow::Result<Counts>;
}

/// A client, our controller, and four servers.
pub(super) struct Script<'a> {
    pub(super) name: &'a str,
    pub(super) controller: &'a mut Controller,
    pub(super) peer: &'a mut dyn Peer,
    pub(super) servers: [SocketAddr; 4],
    pub(super) asker: &'a Asker,
}

impl Script<'_> {
    /// Checks that every server gets its share, to a fifth of all requests, and no other server
    /// gets any.
    fn shares(&mut self, wanted: &[(SocketAddr, f64)]) -> anyhow::Result<()> {
        let counts = self.peer.requests(MANY)?;
        ensure!(
            counts.failed == 0,
            "{} failed: {}",
            counts.failed,
            counts.why
        );
        for (server, share) in wanted {
            let got = counts.answered.get(server).copied().unwrap_or(0);
            let expected = share * f64::from(MANY);
            ensure!(
                (f64::from(got) - expected).abs() < f64::from(MANY) / 10.0,
                "{server} got {got} of {MANY}, not about {expected}"
            );
        }
        let others = counts.answered.keys();
        let mut others = others.filter(|one| !wanted.iter().any(|(server, _)| server == *one));
        ensure!(others.next().is_none(), "{:?}", counts.answered);
        Ok(())
    }

    fn even(&mut self, servers: &[SocketAddr]) -> anyhow::Result<()> {
        let share = 1.0 / servers.len() as f64;
        let wanted: Vec<_> = servers.iter().map(|server| (*server, share)).collect();
        self.shares(&wanted)
    }

    fn case(
        &mut self,
        report: &mut Report,
        what: &str,
        run: impl FnOnce(&mut Self) -> anyhow::Result<String>,
    ) {
        let done = run(self);
        report.case(format!("{}: {what}", self.name), done);
    }

    /// Runs all of it; each case continues from where the last one stopped.
    pub(super) fn run(mut self, report: &mut Report) {
        let [a, b, c, other] = self.servers;
        self.case(report, "takes routes and endpoints, and balances", |this| {
            until("even shares", || this.even(&[a, b])).map(took)
        });
        self.case(report, "an endpoint is added", |this| {
            this.controller.endpoints("web", &[a, b, c])?;
            until("even shares of three", || this.even(&[a, b, c])).map(took)
        });
        self.case(report, "an endpoint is removed", |this| {
            this.controller.endpoints("web", &[b, c])?;
            until("even shares of two", || this.even(&[b, c])).map(took)
        });
        self.case(report, "the route is split between two services", |this| {
            let rule = "{backendRefs: [{name: web, port: 80, weight: 3}, {name: other, port: 80, weight: 1}]}";
            this.controller.route(Some(rule))?;
            let wanted = [(b, 0.375), (c, 0.375), (other, 0.25)];
            until("a quarter of all to the other", || this.shares(&wanted)).map(took)
        });
        self.refusals(report);
        self.case(report, "the controller is killed: all goes on", |this| {
            this.controller.kill();
            this.even(&[b, c])?;
            Ok(format!("{MANY} requests"))
        });
        self.case(
            report,
            "the controller is back with other endpoints",
            |this| {
                this.controller.endpoints("web", &[a])?;
                this.controller.run()?;
                until("the new endpoint", || this.even(&[a])).map(took)
            },
        );
    }

    fn refusals(&mut self, report: &mut Report) {
        let [_, b, c, other] = self.servers;
        self.case(
            report,
            "a bad route is refused (NACK), the last good one stays",
            |this| {
                this.controller.route(Some(&this.controller.bad_rule()))?;
                let mut said = String::new();
                until("a refusal", || {
                    let nacks = this.controller.nacks(this.asker)?;
                    said = nacks.first().cloned().unwrap_or_default();
                    ensure!(!said.is_empty(), "the peer rejected nothing");
                    Ok(())
                })?;
                this.shares(&[(b, 0.375), (c, 0.375), (other, 0.25)])?;
                Ok(said)
            },
        );
        self.case(report, "a good route follows the bad one", |this| {
            this.controller.route(None)?;
            let time = until("even shares again", || this.even(&[b, c]))?;
            until("nothing is refused any more", || {
                let nacks = this.controller.nacks(this.asker)?;
                ensure!(nacks.is_empty(), "{nacks:?}");
                Ok(())
            })?;
            Ok(took(time))
        });
    }
}
