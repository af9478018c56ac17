//! Attempts of policies that choose an endpoint by querying the proxies of endpoints; see
//! [`crate::mesh::load_feedback::queue_protocol`].
//!
//! The decisions are made in [`maglor_balance::queue_protocol`]. This module executes their steps: it sends queries
//! and waits for the answers, and it sends requests with an admission condition, which may be rejected.

use std::sync::Arc;

use http::StatusCode;
use maglor_balance::guard::retry_budget::RetryPermit;
use maglor_balance::queue_protocol::{
    Admission, Announce, Asked as Recipients, Decision, Question, Step,
};
use maglor_balance::{Excluded, Index, PickCtx};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::accounting::Attempt;
use super::{Attempts, Progress, discard};
use crate::mesh::load_feedback::channel::ChannelAnswer;
use crate::mesh::load_feedback::queue_protocol::{QueueRequest, QueueResponse, orca};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Known;
use crate::protocol::message::Response;
use crate::telemetry::metrics::QueueProtocolMetrics;
use crate::upstream::{Endpoints, Picked, Target};

/// State of the queue protocol for one attempt and one snapshot of the endpoints.
struct Consultation {
    endpoints: Arc<Endpoints>,
    excluded: Excluded,
    decision: Decision,
}

/// An endpoint for a request, and the admission condition to send with it.
struct Choice {
    picked: Picked,
    index: Option<Index>,
    request_field: QueueRequest,
}

impl Attempts<'_> {
    /// Finds an endpoint and sends the request to it; repeats both until an endpoint admits the request.
    ///
    /// # Errors
    /// [`ProxyError::NoHealthyUpstream`] or [`ProxyError::EndpointsFull`] if there is no endpoint. Any other
    /// outcome of the request is in the inner result, and the attempt in `progress`.
    pub(super) async fn consult(
        &mut self,
        metrics: &QueueProtocolMetrics,
        progress: &mut Progress,
        mut now: Instant,
        mut permit: Option<RetryPermit>,
    ) -> Result<Result<Response, ProxyError>, ProxyError> {
        let mut consultation = self.consultation();
        let mut fallen_back = false;
        self.subscribe(&consultation.endpoints);
        let mut step = self.step(&mut consultation, now, |consultation, context, rng| {
            let Consultation {
                endpoints,
                decision,
                ..
            } = consultation;
            endpoints.balancer().begin(decision, context, rng)
        });
        loop {
            while let Step::Ask {
                to,
                question,
                timeout,
            } = step
            {
                metrics.questions.inc(self.shard());
                let until = now + timeout;
                step = self
                    .ask(metrics, &mut consultation, (&to, question), until)
                    .await;
                now = Instant::now();
            }
            if consultation.decision.has_fallen_back() && !std::mem::replace(&mut fallen_back, true)
            {
                metrics.fallbacks.inc(self.shard());
            }
            let choice = self.choice(metrics, &consultation, &step, now)?;
            let attempt = self.begin_attempt(choice.picked, now, permit.take());
            let attempt = progress.attempt.insert(attempt);
            choice.request_field.set(self.fields());
            let limit = self.attempt_deadline(now);
            let sending = self.sending(attempt, limit);
            let result = sending.send(self.message, attempt).await;
            let response_field = self.queue_response(&choice.request_field, attempt, &result, now);
            let (Some(QueueResponse::Refused(in_flight)), Some(index)) =
                (response_field, choice.index)
            else {
                return Ok(result);
            };
            metrics.bounces.inc(self.shard());
            permit = progress.attempt.take().and_then(Attempt::bounced);
            if let Ok(response) = result {
                discard(response);
            }
            now = Instant::now();
            step = self.step(&mut consultation, now, |consultation, context, rng| {
                let Consultation {
                    endpoints,
                    decision,
                    ..
                } = consultation;
                let balancer = endpoints.balancer();
                balancer.refused(decision, (index, in_flight), context, rng)
            });
        }
    }

    fn consultation(&self) -> Consultation {
        let endpoints = self.cluster().endpoints();
        let excluded = endpoints.indices(self.failed_endpoints());
        Consultation {
            endpoints,
            excluded,
            decision: Decision::new(),
        }
    }

    /// Subscribes to unsolicited reports of the endpoints, if the policy uses them.
    fn subscribe(&self, endpoints: &Arc<Endpoints>) {
        if let Announce::Balancers { overhead } = endpoints.balancer().spec().announce() {
            let service = self.service();
            let (upstreams, worker) = (&service.upstreams, &service.worker);
            upstreams.subscribe(self.cluster(), endpoints, overhead as f32, worker);
        }
    }

    /// Executes a step of the policy's decision.
    fn step(
        &self,
        consultation: &mut Consultation,
        now: Instant,
        decide: impl FnOnce(&mut Consultation, &PickCtx<'_>, &mut maglor_balance::Rng) -> Step,
    ) -> Step {
        let worker = &self.service().worker;
        let excluded = consultation.excluded.clone();
        let context = PickCtx {
            now: worker.time(now),
            hash: self.hash(),
            excluded: &excluded,
        };
        worker.with_rng(|rng| decide(consultation, &context, rng))
    }

    /// Sends a query and waits for as many answers as the policy needs.
    async fn ask(
        &self,
        metrics: &QueueProtocolMetrics,
        consultation: &mut Consultation,
        (to, question): (&Recipients, Question),
        until: Instant,
    ) -> Step {
        // The channel closes when no task is left that could answer.
        let mut answers = self.put(consultation, to, question);
        loop {
            let answer = timeout_at(until, answers.recv()).await;
            let now = Instant::now();
            let Ok(Some((from, answer))) = answer else {
                return self.step(consultation, now, |consultation, context, rng| {
                    let Consultation {
                        endpoints,
                        decision,
                        ..
                    } = consultation;
                    endpoints.balancer().timed_out(decision, context, rng)
                });
            };
            metrics.answers.inc(self.shard());
            let step = self.step(consultation, now, |consultation, context, rng| {
                let Consultation {
                    endpoints,
                    decision,
                    ..
                } = consultation;
                let balancer = endpoints.balancer();
                balancer.answered(decision, (from, answer), context, rng)
            });
            if step != Step::Wait {
                return step;
            }
        }
    }

    fn put(
        &self,
        consultation: &Consultation,
        to: &Recipients,
        question: Question,
    ) -> mpsc::Receiver<ChannelAnswer> {
        let (sender, answers) = mpsc::channel(to.len().max(1));
        let service = self.service();
        let now = service.worker.time(Instant::now());
        for index in to {
            let Some(target) = consultation.endpoints.targets().get(index.get()) else {
                continue;
            };
            if !target.lacks_queue_protocol(now) {
                let channel = service
                    .upstreams
                    .channel(self.cluster(), target, &service.worker);
                channel.ask(*index, question, &sender);
            }
        }
        answers
    }

    /// Returns the endpoint of a step that sends, or the choice of the local policy if that endpoint cannot be used.
    fn choice(
        &self,
        metrics: &QueueProtocolMetrics,
        consultation: &Consultation,
        step: &Step,
        now: Instant,
    ) -> Result<Choice, ProxyError> {
        let &Step::Send {
            to,
            admission,
            ticket,
        } = step
        else {
            return Err(self.cluster().no_endpoint());
        };
        let time = self.service().worker.time(now);
        let target = consultation.endpoints.targets().get(to.get());
        let conditional = admission != Admission::Always;
        let picked = match target {
            // An endpoint without the protocol admits any request.
            Some(target) if conditional && target.lacks_queue_protocol(time) => {
                metrics.without_protocol.inc(self.shard());
                None
            }
            // A rejected request could not be sent a second time.
            Some(_) if conditional && !self.is_resendable() => None,
            Some(target) => target.take(self.cluster().guard(), time).inspect(|_| {
                self.note(&consultation.endpoints, to);
                self.cluster()
                    .measure_choice(&consultation.endpoints, to, time);
            }),
            None => None,
        };
        let unconditional = QueueRequest {
            admission: Admission::Always,
            ticket: None,
        };
        Ok(match (picked, target) {
            (Some(picked), _) => Choice {
                picked,
                index: Some(to),
                request_field: QueueRequest { admission, ticket },
            },
            (None, target) => Choice {
                picked: self.by_counts(target.filter(|_| conditional), now)?,
                index: None,
                request_field: unconditional,
            },
        })
    }

    /// Notes a choice in the request's record.
    fn note(&self, endpoints: &Endpoints, chosen: Index) {
        if let Some(record) = self.record() {
            endpoints.note(chosen, record);
        }
    }

    /// Picks an endpoint by the local policy. The endpoint that a step chose is used instead if it has fewer
    /// requests: it gets its share although it cannot be queried.
    fn by_counts(&self, chosen: Option<&Arc<Target>>, now: Instant) -> Result<Picked, ProxyError> {
        let picked = self.choose(now)?;
        let fewer = |chosen: &&Arc<Target>| {
            // The picked endpoint's count already includes this request.
            chosen.stats.outstanding() < picked.target.stats.outstanding()
        };
        let time = self.service().worker.time(now);
        let chosen = chosen.filter(fewer);
        let taken = chosen.and_then(|chosen| chosen.take(self.cluster().guard(), time));
        Ok(taken.unwrap_or(picked))
    }

    /// Returns the queue state that the endpoint's proxy reports, and records whether it supports the protocol.
    fn queue_response(
        &self,
        request_field: &QueueRequest,
        attempt: &Attempt,
        result: &Result<Response, ProxyError>,
        now: Instant,
    ) -> Option<QueueResponse> {
        let response = result.as_ref().ok()?;
        let conditional = request_field.admission != Admission::Always;
        // A request without a condition cannot be rejected. A rejection of it is ignored, since the request must not
        // be sent twice.
        let makes_sense = |response_field: &QueueResponse| match response_field {
            QueueResponse::InFlight(_) => true,
            QueueResponse::Refused(_) => {
                conditional && response.status == StatusCode::SERVICE_UNAVAILABLE
            }
        };
        let response_field = QueueResponse::of(&response.fields).filter(makes_sense);
        if conditional {
            let now = self.service().worker.time(now);
            attempt
                .target()
                .set_lacks_queue_protocol(response_field.is_none(), now);
        }
        if response_field.is_none()
            && let Some(report) = response.fields.get(Known::EndpointLoadMetrics)
            && let Some(in_flight) = orca::in_flight(report)
        {
            attempt.target().stats.report(in_flight);
        }
        response_field
    }
}
