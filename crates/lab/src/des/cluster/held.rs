//! Slots that are held after errors, at balancers and at servers' inbound proxies; see
//! [`maglor_balance::Usual`].

use maglor_balance::queue_protocol::Held;
use maglor_balance::{Outstanding, Time};

use super::Cluster;
use crate::des::post::Mail;

/// The held slots by number.
#[derive(Debug, Default)]
pub(super) struct Places {
    places: Vec<Option<Place>>,
    free: Vec<u32>,
}

#[derive(Debug)]
enum Place {
    /// At a balancer.
    Balancer(#[allow(dead_code, reason = "it counts until it is dropped")] Outstanding),
    /// At a server.
    Server {
        service: u16,
        server: u32,
        held: Held,
    },
}

impl Places {
    fn keep(&mut self, place: Place) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = Some(place);
                at
            }
            None => {
                self.places.push(Some(place));
                (self.places.len() - 1) as u32
            }
        }
    }
}

impl Cluster<'_> {
    /// Ends an attempt with an error response.
    pub(super) fn release_failed(&mut self, at: u32) {
        let now = self.time();
        let job = self.jobs.get_mut(at);
        let (service, server, balancer) = (job.service, job.server, job.balancer);
        let (outstanding, admitted) = (job.outstanding.take(), job.admitted.take());
        let usual = &self.tiers[usize::from(service)].usual[balancer as usize];
        if let Some(Err((outstanding, until))) = outstanding.map(|o| o.fail(usual, now)) {
            self.keep(Place::Balancer(outstanding), until);
        }
        match admitted.map(|admitted| admitted.fail(now)) {
            None | Some(Ok(None)) => {}
            Some(Ok(Some(report))) => self.announce(service, server, report),
            Some(Err(held)) => {
                // The finished request is one less, its slot one more; but the server has received
                // the request, and the ledger should be informed of that.
                let report = self.report_of(service, server);
                let until = held.until();
                let place = Place::Server {
                    service,
                    server,
                    held,
                };
                self.keep(place, until);
                if let Some(report) = report {
                    self.announce(service, server, report);
                }
            }
        }
    }

    fn keep(&mut self, place: Place, until: Time) {
        let at = self.held.keep(place);
        self.post.remind(until.as_nanos(), Mail::Release { at });
    }

    /// Releases a slot whose time has expired.
    pub(super) fn release(&mut self, at: u32) {
        let place = self.held.places[at as usize].take();
        self.held.free.push(at);
        if let Some(Place::Server {
            service,
            server,
            held,
        }) = place
        {
            drop(held);
            if let Some(report) = self.report_of(service, server) {
                self.announce(service, server, report);
            }
        }
    }
}
