//! The number of replicas: more if load and CPU require it and there is capacity, and fewer if fewer have been
//! sufficient for a while. The recommendation has hysteresis against noise.

use std::time::Duration;

use maglor_balance::Time;

use super::Advised;
use super::number_format::{count, number, percent, span};
use super::observed::Room;
use super::params::Params;
use super::resources;
use super::track::ServiceTrack;

/// The number of replicas that are needed, by cause.
struct Need {
    load: f64,
    /// The number of replicas that the CPU usage requires; `None` = CPU is not considered.
    cpu: Option<f64>,
    /// The used share of the CPU that is available to the running replicas.
    used: f64,
    /// The number of requests within the interval of the threshold.
    requests: f64,
}

impl Need {
    fn of(track: &ServiceTrack, params: &Params) -> Self {
        let capacity = track.now.cpu_limit_millis;
        let capacity = capacity.unwrap_or(params.resources.most_cpu_millis).max(1) as f64;
        let requests = track.rps_scaled.get() * params.thresholds.within.as_secs_f64();
        let cpu = track.cpu_scaled.get() / capacity;
        let utilization = params.scaling.utilization;
        Self {
            load: requests / params.thresholds.requests.max(1e-9),
            cpu: utilization.map(|share| cpu / share.max(0.01)),
            used: cpu / f64::from(track.now.replicas.max(1)),
            requests,
        }
    }

    fn replicas(&self, params: &Params) -> u32 {
        // Both have to require a replica; neither suffices by itself.
        let both = self.cpu.map_or(self.load, |cpu| cpu.min(self.load));
        let (least, most) = (params.scaling.least.max(1), params.scaling.most.max(1));
        count(both - 1e-9, most).max(least.min(most))
    }
}

impl ServiceTrack {
    /// Decides on the number of replicas.
    pub(super) fn scale(&mut self, now: Time, room: &mut Option<Room>, params: &Params) {
        let p = &params.scaling;
        let running = self.now.replicas;
        let known = self.cpu_planned.known().is_some() || p.utilization.is_none();
        if self.now.autoscaled || running == 0 || !known {
            self.replicas = None;
            return;
        }
        let need = Need::of(self, params);
        let mut needed = need.replicas(params);
        // Replicas help against the service's own queues, not against those of the services it
        // calls.
        let own_ms = self.own.latency_ms.get();
        let slow = own_ms > params.thresholds.latency.as_secs_f64() * 1e3;
        let busy = need.used > 0.5 * p.utilization.unwrap_or(0.0);
        let by_latency = slow && busy && need.load > f64::from(running) && needed <= running;
        if by_latency {
            needed = (running + 1).min(p.most.max(running));
        }
        let since = |at: Option<Time>| at.map_or(Duration::MAX, |at| now.saturating_since(at));
        let calm = since(self.scaled) >= p.cool_down && since(self.began) >= p.band.patience;
        self.replicas = Some(if needed > running {
            // As an autoscaler does: at most twice as many at once.
            let wanted = needed.min(running.saturating_mul(2));
            let slow = by_latency.then_some(own_ms);
            self.out(wanted, slow, &need, room, params)
        } else if needed < running && !slow && calm {
            self.back(needed, &need, params)
        } else {
            let reason = format!(
                "{} and {} of the CPU limit of {running} replica(s)",
                requests(&need, params),
                percent(need.used)
            );
            Advised::new(running, reason)
        });
    }

    /// Adds replicas, as far as there is capacity.
    fn out(
        &self,
        wanted: u32,
        own_ms: Option<f64>,
        need: &Need,
        room: &mut Option<Room>,
        params: &Params,
    ) -> Advised<u32> {
        let running = self.now.replicas;
        let fits = self.take(running, wanted, room, params);
        if wanted <= params.scaling.least {
            let least = params.scaling.least;
            return Advised::new(fits, format!("the minimum is {least} replica(s)"));
        }
        let short = match fits < wanted {
            true => format!("; {wanted} are needed, the nodes have room for {fits}"),
            false => String::new(),
        };
        let cause = match (own_ms, params.scaling.utilization) {
            (Some(ms), _) => format!("take {} ms themselves", number(ms)),
            (None, None) => "the load alone decides".to_owned(),
            (None, Some(share)) => format!(
                "{} of their CPU limit is used, above {}",
                percent(need.used),
                percent(share)
            ),
        };
        let reason = format!(
            "{running} replica(s) take {}, more than {} each, and {cause}{short}",
            requests(need, params),
            number(params.thresholds.requests),
        );
        Advised::new(fits, reason)
    }

    fn back(&self, value: u32, need: &Need, params: &Params) -> Advised<u32> {
        let reason = format!(
            "for {}, there were at most {}, and at most {} of the CPU limit of {} replicas was used",
            span(params.scaling.band.patience),
            requests(need, params),
            percent(need.used),
            self.now.replicas,
        );
        Advised::new(value, reason)
    }

    /// Takes capacity for additional replicas; returns the number of replicas for which there is capacity.
    fn take(&self, running: u32, wanted: u32, room: &mut Option<Room>, params: &Params) -> u32 {
        let Some(room) = room else {
            return wanted;
        };
        let cpu = resources::cpu(self, wanted, params).map(|advised| advised.value);
        let cpu = cpu.unwrap_or(self.now.cpu_millis).max(1);
        let memory = resources::memory(self, params).map(|advised| advised.value);
        let memory = memory.unwrap_or(self.now.memory_mib).max(1);
        let places = (room.cpu_millis / cpu).min(room.memory_mib / memory);
        let more = u64::from(wanted.saturating_sub(running)).min(places);
        room.cpu_millis -= more * cpu;
        room.memory_mib -= more * memory;
        running + u32::try_from(more).unwrap_or(0)
    }
}

/// Formats the number of requests within the interval of the threshold.
fn requests(need: &Need, params: &Params) -> String {
    let within = span(params.thresholds.within);
    format!("{} requests in {within}", number(need.requests))
}
