//! A try whose endpoint is found by talking to endpoints' proxies, for policies that do; see
//! [`crate::mesh::load_feedback::queue_protocol`].
//!
//! What is decided is decided in [`maglor_balance::exchange`], step by step; here the steps are taken: a
//! question is put and waited for, a request is sent on a condition and comes back.

use std::sync::Arc;

use http::StatusCode;
use maglor_balance::exchange::{Admission, Announce, Asked as Whom, Decision, Question, Step};
use maglor_balance::guard::budget::RetryPermit;
use maglor_balance::{Excluded, Index, PickCtx};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::accounting::Tried;
use super::{Progress, Tries, discard};
use crate::mesh::load_feedback::channel::Heard;
use crate::mesh::load_feedback::queue_protocol::{Asked, Said, orca};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::message::Response;
use crate::telemetry::metrics::ExchangeMetrics;
use crate::upstream::{Endpoints, Picked, Target};

/// One try's talk with the endpoints of one snapshot.
struct Talk {
    endpoints: Arc<Endpoints>,
    excluded: Excluded,
    decision: Decision,
}

/// Where a request goes, under which condition.
struct Way {
    picked: Picked,
    index: Option<Index>,
    asked: Asked,
}

impl Tries<'_> {
    /// Finds an endpoint and sends the request there, until one has let it in.
    ///
    /// # Errors
    /// [`ProxyError::NoHealthyUpstream`], [`ProxyError::EndpointsFull`]: there is no endpoint. What else
    /// happens to the request is in the inner result, and the try in `progress`.
    pub(in crate::http) async fn consult(
        &mut self,
        metrics: &ExchangeMetrics,
        progress: &mut Progress,
        mut now: Instant,
        mut permit: Option<RetryPermit>,
    ) -> Result<Result<Response, ProxyError>, ProxyError> {
        let mut talk = self.talk();
        let mut fallen_back = false;
        self.listen(&talk.endpoints);
        let mut step = self.step(&mut talk, now, |talk, context, rng| {
            let Talk {
                endpoints,
                decision,
                ..
            } = talk;
            endpoints.balancer().begin(decision, context, rng)
        });
        loop {
            while let Step::Ask {
                to,
                question,
                patience,
            } = step
            {
                metrics.questions.inc(self.shard());
                let until = now + patience;
                step = self.ask(metrics, &mut talk, (&to, question), until).await;
                now = Instant::now();
            }
            if talk.decision.has_fallen_back() && !std::mem::replace(&mut fallen_back, true) {
                metrics.fallbacks.inc(self.shard());
            }
            let way = self.way(metrics, &talk, &step, now)?;
            let tried = self.tried(way.picked, now, permit.take());
            let tried = progress.tried.insert(tried);
            way.asked.set(self.fields());
            let result = self.attempt(tried, now).await;
            let said = self.said(&way.asked, tried, &result, now);
            let (Some(Said::Refused(in_flight)), Some(index)) = (said, way.index) else {
                return Ok(result);
            };
            metrics.bounces.inc(self.shard());
            permit = progress.tried.take().and_then(Tried::bounced);
            if let Ok(response) = result {
                discard(response);
            }
            now = Instant::now();
            step = self.step(&mut talk, now, |talk, context, rng| {
                let Talk {
                    endpoints,
                    decision,
                    ..
                } = talk;
                let balancer = endpoints.balancer();
                balancer.refused(decision, (index, in_flight), context, rng)
            });
        }
    }

    fn talk(&self) -> Talk {
        let endpoints = self.cluster().endpoints();
        let excluded = endpoints.indices(self.tried_before());
        Talk {
            endpoints,
            excluded,
            decision: Decision::new(),
        }
    }

    /// Subscribes to what endpoints say of their own accord, where the policy wants that.
    fn listen(&self, endpoints: &Arc<Endpoints>) {
        if let Announce::Balancers { overhead } = endpoints.balancer().spec().announce() {
            let service = self.service();
            let (pools, worker) = (&service.pools, &service.worker);
            pools.subscribe(self.cluster(), endpoints, overhead as f32, worker);
        }
    }

    /// Lets the policy decide.
    fn step(
        &self,
        talk: &mut Talk,
        now: Instant,
        decide: impl FnOnce(&mut Talk, &PickCtx<'_>, &mut maglor_balance::Rng) -> Step,
    ) -> Step {
        let worker = &self.service().worker;
        let excluded = talk.excluded.clone();
        let context = PickCtx {
            now: worker.time(now),
            hash: self.hash(),
            excluded: &excluded,
        };
        worker.with_rng(|rng| decide(talk, &context, rng))
    }

    /// Puts a question and waits for what is needed of the answers.
    async fn ask(
        &self,
        metrics: &ExchangeMetrics,
        talk: &mut Talk,
        (to, question): (&Whom, Question),
        until: Instant,
    ) -> Step {
        // It closes when nobody is left who could answer.
        let mut heard = self.put(talk, to, question);
        loop {
            let answer = timeout_at(until, heard.recv()).await;
            let now = Instant::now();
            let Ok(Some((from, answer))) = answer else {
                return self.step(talk, now, |talk, context, rng| {
                    let Talk {
                        endpoints,
                        decision,
                        ..
                    } = talk;
                    endpoints.balancer().timed_out(decision, context, rng)
                });
            };
            metrics.answers.inc(self.shard());
            let step = self.step(talk, now, |talk, context, rng| {
                let Talk {
                    endpoints,
                    decision,
                    ..
                } = talk;
                let balancer = endpoints.balancer();
                balancer.answered(decision, (from, answer), context, rng)
            });
            if step != Step::Wait {
                return step;
            }
        }
    }

    fn put(&self, talk: &Talk, to: &Whom, question: Question) -> mpsc::Receiver<Heard> {
        let (sender, heard) = mpsc::channel(to.len().max(1));
        let service = self.service();
        let now = service.worker.time(Instant::now());
        for index in to {
            let Some(target) = talk.endpoints.targets().get(index.get()) else {
                continue;
            };
            if !target.is_stranger(now) {
                let link = service.pools.link(self.cluster(), target, &service.worker);
                link.ask(*index, question, &sender);
            }
        }
        heard
    }

    /// The endpoint of a step that sends; by the local policy where the step's cannot be had.
    fn way(
        &self,
        metrics: &ExchangeMetrics,
        talk: &Talk,
        step: &Step,
        now: Instant,
    ) -> Result<Way, ProxyError> {
        let &Step::Send {
            to,
            admission,
            ticket,
        } = step
        else {
            return Err(self.cluster().nobody());
        };
        let time = self.service().worker.time(now);
        let target = talk.endpoints.targets().get(to.get());
        let conditional = admission != Admission::Always;
        let picked = match target {
            // It would let in whatever comes.
            Some(target) if conditional && target.is_stranger(time) => {
                metrics.strangers.inc(self.shard());
                None
            }
            // It could not be sent a second time.
            Some(_) if conditional && !self.is_resendable() => None,
            Some(target) => target.take(self.cluster().guard(), time).inspect(|_| {
                self.cluster().judge_choice(&talk.endpoints, to, time);
            }),
            None => None,
        };
        let unconditional = Asked {
            admission: Admission::Always,
            ticket: None,
        };
        Ok(match (picked, target) {
            (Some(picked), _) => Way {
                picked,
                index: Some(to),
                asked: Asked { admission, ticket },
            },
            (None, target) => Way {
                picked: self.by_counts(target.filter(|_| conditional), now)?,
                index: None,
                asked: unconditional,
            },
        })
    }

    /// An endpoint by the local policy, or the one that a step chose, where that has fewer requests: it keeps
    /// its share although it cannot be asked.
    fn by_counts(&self, chosen: Option<&Arc<Target>>, now: Instant) -> Result<Picked, ProxyError> {
        let picked = self.choose(now)?;
        let fewer = |chosen: &&Arc<Target>| {
            // The one that was picked counts this request already.
            chosen.stats.outstanding() < picked.target.stats.outstanding()
        };
        let time = self.service().worker.time(now);
        let chosen = chosen.filter(fewer);
        let taken = chosen.and_then(|chosen| chosen.take(self.cluster().guard(), time));
        Ok(taken.unwrap_or(picked))
    }

    /// What the endpoint's proxy says of its queue; also whether it has one that knows the protocol.
    fn said(
        &self,
        asked: &Asked,
        tried: &Tried,
        result: &Result<Response, ProxyError>,
        now: Instant,
    ) -> Option<Said> {
        let response = result.as_ref().ok()?;
        let conditional = asked.admission != Admission::Always;
        // Who was asked without a condition has had the request: whatever it says, it gets it once.
        let makes_sense = |said: &Said| match said {
            Said::InFlight(_) => true,
            Said::Refused(_) => conditional && response.status == StatusCode::SERVICE_UNAVAILABLE,
        };
        let said = Said::of(&response.fields).filter(makes_sense);
        if conditional {
            let now = self.service().worker.time(now);
            tried.target().set_stranger(said.is_none(), now);
        }
        if said.is_none()
            && let Some(report) = response.fields.get(Known::EndpointLoadMetrics)
            && let Some(in_flight) = orca::in_flight(report)
        {
            tried.target().stats.report(in_flight);
        }
        said
    }
}
