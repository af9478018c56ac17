//! Assigns requests to servers: at once under a local policy, step by step and by messages under a
//! collaborative one. All decisions are made by `maglor_balance`; this executes them.

use maglor_balance::queue_protocol::{
    Admission, Announce, Answer, Asked, Audit, Load, Name, Question, Referral, Report, Step, Ticket,
};
use maglor_balance::{Excluded, Index, PickCtx, Rng};

use super::Cluster;
use super::tier::Balancer;
use crate::comparison::Reports;
use crate::des::jobs::Jobs;
use crate::des::post::Mail;

impl Cluster<'_> {
    #[inline]
    pub(super) fn place(&mut self, at: u32) {
        let now = self.time();
        let job = self.jobs.get(at);
        let tier = &self.tiers[usize::from(job.service)];
        if tier.help.is_some() {
            return self.decide(at, |balancer, jobs, ctx, rng| {
                balancer.begin(jobs.deciding(at).1, ctx, rng)
            });
        }
        let balancer = &tier.balancers[job.balancer as usize];
        let rng = &mut self.chance.policy;
        let picked = if self.guarded {
            let attempted = &self.jobs.attempting(at).1.attempted;
            balancer.pick(&PickCtx::new(now).excluding(attempted), rng)
        } else {
            balancer.pick(&PickCtx::new(now), rng)
        };
        match picked {
            None => self.fail(at),
            Some(index) => {
                let endpoint = balancer.view().endpoint(index);
                let outstanding = endpoint.map(|endpoint| endpoint.stats.begin(now));
                self.jobs.get_mut(at).outstanding = outstanding;
                self.enter(at, index.get() as u32);
            }
        }
    }

    /// Gets the next step from the balancer and executes it.
    fn decide(
        &mut self,
        at: u32,
        next: impl FnOnce(&Balancer, &mut Jobs, &PickCtx<'_>, &mut Rng) -> Step,
    ) {
        let now = self.time();
        let attempted = if self.guarded {
            self.jobs.attempting(at).1.attempted.clone()
        } else {
            Excluded::new()
        };
        let ctx = PickCtx::new(now).excluding(&attempted);
        let job = self.jobs.get(at);
        let tier = &self.tiers[usize::from(job.service)];
        let balancer = &tier.balancers[job.balancer as usize];
        match next(balancer, &mut self.jobs, &ctx, &mut self.chance.policy) {
            Step::Ask {
                to,
                question,
                timeout,
            } => self.ask(at, &to, question, timeout.as_nanos() as u64),
            Step::Fail => self.fail(at),
            Step::Send {
                to,
                admission,
                ticket,
            } => self.send(at, to, admission, ticket),
            Step::Wait => {}
        }
    }

    fn ask(&mut self, at: u32, to: &Asked, question: Question, timeout: u64) {
        let deadline = self.now + timeout;
        let job = self.jobs.get_mut(at);
        job.generation = job.generation.wrapping_add(1);
        job.deadline = deadline;
        let generation = job.generation;
        let mut answerable = 2 * self.post.delay() <= timeout;
        for to in to {
            let to = to.get() as u32;
            let mail = Mail::Question {
                job: at,
                generation,
                to,
                question,
            };
            answerable &= self.mail(mail);
        }
        // A time-out that cannot occur is not scheduled; if a message is lost on the way back, the
        // balancer that loses it schedules one.
        if !answerable {
            let mail = Mail::TimeOut {
                job: at,
                generation,
            };
            self.post.remind(deadline, mail);
        }
    }

    /// Sends a message, which may be lost; returns whether it will arrive.
    fn mail(&mut self, mail: Mail) -> bool {
        self.counts.messages += 1;
        let loss = self.scenario.network.loss;
        let arrives = loss == 0.0 || self.chance.network.unit() >= loss;
        if arrives {
            self.post.send(self.now, mail);
        }
        arrives
    }

    fn send(&mut self, at: u32, to: Index, admission: Admission, ticket: Option<Ticket>) {
        let now = self.time();
        let (job, decision) = self.jobs.deciding(at);
        let tier = &self.tiers[usize::from(job.service)];
        let balancer = &tier.balancers[job.balancer as usize];
        let endpoint = balancer.view().endpoint(to);
        job.outstanding = endpoint.map(|endpoint| endpoint.stats.begin(now));
        // The time-out of a stalled host occurs although it responds later.
        job.generation = job.generation.wrapping_add(1);
        let Some(help) = &tier.help else { return };
        match help.inbounds[to.get()].admit(admission, ticket, now) {
            Ok(admitted) => {
                job.admitted = Some(admitted);
                self.counts.fallbacks += u64::from(decision.has_fallen_back());
                self.ask_beside(at);
                self.enter(at, to.get() as u32);
            }
            Err(in_flight) => {
                // There and back; neither can be lost, for it is the request's own connection.
                self.counts.messages += 2;
                let from = to.get() as u32;
                let mail = Mail::Refusal {
                    job: at,
                    from,
                    in_flight,
                };
                self.post.send_back(self.now, mail);
            }
        }
    }

    /// Sends queries for later requests.
    fn ask_beside(&mut self, at: u32) {
        let ctx = PickCtx::new(self.time());
        let job = self.jobs.get(at);
        let (service, balancer) = (job.service, job.balancer);
        let asking = &self.tiers[usize::from(service)].balancers[balancer as usize];
        for to in asking.asides(&ctx, &mut self.chance.policy) {
            let to = to.get() as u32;
            self.mail(Mail::Aside {
                service,
                balancer,
                to,
            });
        }
    }

    pub(super) fn deliver(&mut self, mail: Mail) {
        if self.stalls(&mail) {
            return;
        }
        match mail {
            Mail::Aside {
                service,
                balancer,
                to,
            } => self.answer_aside(service, balancer, to),
            Mail::Audit { service, to } => {
                if let Some(report) = self.report_of(service, to) {
                    self.report(service, to, report);
                }
            }
            Mail::Heard {
                service,
                balancer,
                from,
                load,
            } => {
                let tier = &self.tiers[usize::from(service)];
                let from = Index::new(from as usize);
                tier.balancers[balancer as usize].record_load(from, &load, self.time());
            }
            Mail::Idle { service, from } => self.post_idle(service, from),
            Mail::Membership {
                service,
                server,
                absent,
            } => {
                let now = self.time();
                if let Some(help) = &mut self.tiers[usize::from(service)].help {
                    help.set_absent(server, absent, now);
                }
            }
            Mail::Question {
                job,
                generation,
                to,
                question,
            } => self.answer(job, generation, to, question),
            Mail::Release { at } => self.release(at),
            Mail::Report {
                service,
                from,
                report,
            } => self.take_report(service, from, &report),
            Mail::Retry { job } => self.place(job),
            Mail::Sweep { service, balancer } => self.sweep(service, balancer),
            Mail::Answer { .. } | Mail::Refusal { .. } | Mail::TimeOut { .. } => self.step_on(mail),
            Mail::View {
                service,
                balancer,
                server,
                absent,
            } => {
                let now = self.time();
                let tier = &mut self.tiers[usize::from(service)];
                tier.set_absent_for(balancer, server, absent, now);
            }
        }
    }

    /// Processes the message that a request has been waiting for.
    fn step_on(&mut self, mail: Mail) {
        match mail {
            Mail::Answer {
                job,
                generation,
                from,
                answer,
            } if self.jobs.is_current(job, generation) => {
                let answer = (Index::new(from as usize), answer);
                self.decide(job, |balancer, jobs, ctx, rng| {
                    balancer.answered(jobs.deciding(job).1, answer, ctx, rng)
                });
            }
            Mail::Refusal {
                job,
                from,
                in_flight,
            } => {
                self.jobs.get_mut(job).outstanding = None;
                let refusal = (Index::new(from as usize), in_flight);
                self.decide(job, |balancer, jobs, ctx, rng| {
                    balancer.refused(jobs.deciding(job).1, refusal, ctx, rng)
                });
            }
            Mail::TimeOut { job, generation } if self.jobs.is_current(job, generation) => {
                let waiting = self.jobs.get_mut(job);
                // Later responses are dropped.
                waiting.generation = waiting.generation.wrapping_add(1);
                self.decide(job, |balancer, jobs, ctx, rng| {
                    balancer.timed_out(jobs.deciding(job).1, ctx, rng)
                });
            }
            _ => {}
        }
    }

    /// Queues a message for a stalled host; the sender of a query times out.
    #[inline]
    fn stalls(&mut self, mail: &Mail) -> bool {
        let (service, at) = match *mail {
            Mail::Report { service, from, .. } | Mail::Idle { service, from } => (service, from),
            Mail::Question {
                job, to, question, ..
            } if question != Question::Load => (self.jobs.get(job).service, to),
            _ => return false,
        };
        let help = self.tiers[usize::from(service)].help.as_mut();
        let host = help.and_then(|help| help.host_of(at));
        let Some(waiting) = host.and_then(|host| host.stalled.as_mut()) else {
            return false;
        };
        waiting.push(*mail);
        if let Mail::Question {
            job, generation, ..
        } = *mail
            && self.jobs.is_current(job, generation)
        {
            let deadline = self.jobs.get(job).deadline.max(self.now);
            self.post
                .remind(deadline, Mail::TimeOut { job, generation });
        }
        true
    }

    /// Processes a query at the inbound proxy `to`.
    fn answer(&mut self, at: u32, generation: u32, to: u32, question: Question) {
        let (service, deadline) = (self.jobs.get(at).service, self.jobs.get(at).deadline);
        let answer = self.find_answer(service, to, question);
        if !self.jobs.is_current(at, generation) {
            // The sender has timed out. The responder cannot detect that, and has counted it.
            return;
        }
        let answered = answer.is_some_and(|answer| {
            self.mail(Mail::Answer {
                job: at,
                generation,
                from: to,
                answer,
            })
        });
        if !answered {
            let mail = Mail::TimeOut {
                job: at,
                generation,
            };
            self.post.remind(deadline.max(self.now), mail);
        }
    }

    /// Returns the response of the inbound proxy `to`; `None` if its ledger or board is dead.
    fn find_answer(&mut self, service: u16, to: u32, question: Question) -> Option<Answer> {
        let now = self.time();
        let rng = &mut self.chance.network;
        let help = self.tiers[usize::from(service)].help.as_mut()?;
        match question {
            // A board answers like a ledger, without a ticket.
            Question::Referral if help.reports == Reports::BoardWhenIdle => {
                let server = help.host_of(to)?.board.take(rng);
                Some(Answer::Referral(server.map(|server| Referral {
                    server,
                    ticket: None,
                    second: None,
                })))
            }
            Question::Load => Some(Answer::Load(help.inbounds[to as usize].load())),
            Question::Referral | Question::ReferralAmong(_) => {
                let among = match question {
                    Question::ReferralAmong(among) => Some(among),
                    _ => None,
                };
                let ledger = &mut help.host_of(to)?.ledger;
                let (referral, audit) = ledger.ask_among(among, now, rng);
                let audited = audit.and_then(|Audit(name)| help.server(name));
                if let Some(to) = audited {
                    self.mail(Mail::Audit { service, to });
                }
                Some(Answer::Referral(referral))
            }
        }
    }

    fn answer_aside(&mut self, service: u16, balancer: u32, to: u32) {
        let help = self.tiers[usize::from(service)].help.as_ref();
        let Some(load) = help.map(|help| help.inbounds[to as usize].load()) else {
            return;
        };
        self.mail(Mail::Heard {
            service,
            balancer,
            from: to,
            load,
        });
    }

    fn post_idle(&mut self, service: u16, from: u32) {
        let Some(help) = &mut self.tiers[usize::from(service)].help else {
            return;
        };
        let name = help.names[from as usize];
        if let Some(host) = help.host_of(from) {
            host.board.post(name);
        }
    }

    fn take_report(&mut self, service: u16, from: u32, report: &Report) {
        let now = self.time();
        let Some(help) = &mut self.tiers[usize::from(service)].help else {
            return;
        };
        let name = help.names[from as usize];
        if let Some(host) = help.host_of(from) {
            host.ledger.report(name, report, now);
        }
    }

    /// Sends a server's announcements after a request.
    pub(super) fn announce(&mut self, service: u16, from: u32, report: Report) {
        let tier = &self.tiers[usize::from(service)];
        let Some(help) = &tier.help else { return };
        match help.reports {
            Reports::AsInProxy(announce @ Announce::Balancers { .. }) => {
                let load = Load {
                    in_flight: report.in_flight,
                    ..Load::default()
                };
                let balancers = tier.balancers.len() as u32;
                let mut notified = std::mem::take(&mut self.notified);
                announce
                    .choose_balancers(balancers, &mut self.chance.network, |b| notified.push(b));
                for balancer in notified.drain(..) {
                    self.mail(Mail::Heard {
                        service,
                        balancer,
                        from,
                        load,
                    });
                }
                self.notified = notified;
            }
            Reports::BoardWhenIdle if report.in_flight == 0 => {
                self.mail(Mail::Idle { service, from });
            }
            Reports::AsInProxy(Announce::Ledger) => self.report(service, from, report),
            Reports::BoardWhenIdle | Reports::AsInProxy(Announce::Never) => {}
        }
    }

    /// Returns the present report of a server; `None` under policies without inbound proxies.
    pub(super) fn report_of(&self, service: u16, server: u32) -> Option<Report> {
        let help = self.tiers[usize::from(service)].help.as_ref()?;
        Some(help.inbounds[server as usize].report())
    }

    /// Sends a server's report to its ledger, unless it is silent.
    fn report(&mut self, service: u16, from: u32, report: Report) {
        let help = self.tiers[usize::from(service)].help.as_ref();
        let Some(help) = help.filter(|help| !help.silent[from as usize]) else {
            return;
        };
        let age = Some(help.age(from, self.time()));
        let mail = Mail::Report {
            service,
            from,
            report: Report { age, ..report },
        };
        let loss = self.scenario.network.report_loss;
        if loss > 0.0 && self.chance.network.unit() < loss {
            self.counts.messages += 1;
        } else {
            self.mail(mail);
        }
    }
}

impl super::tier::Help {
    /// Returns the server of a name.
    fn server(&self, name: Name) -> Option<u32> {
        let index = self.groups.as_ref()?.named(name)?;
        Some(index.get() as u32)
    }
}
