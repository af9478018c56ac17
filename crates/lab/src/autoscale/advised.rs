//! A scaler that applies Algorithm 2 literally: the recommendations of
//! `maglor_service_graph::advise` take effect immediately.

use std::time::Duration;

use maglor_balance::Time;
use maglor_service_graph::advise::{Advisor, EdgeUse, Params, ServiceUse, Snapshot};

use super::application::Application;
use super::{Scaler, Seen, Size};

/// The advisor, and the edges that are reported to it.
#[derive(Clone, Debug)]
pub struct Advised {
    advisor: Advisor,
    edges: Vec<(usize, usize, f64)>,
}

impl Advised {
    /// Creates a scaler without observations.
    #[must_use]
    pub fn new(application: &Application, params: Params) -> Self {
        Self {
            advisor: Advisor::new(params),
            edges: application.edges().collect(),
        }
    }

    fn snapshot(&self, seen: &[Seen], now: &[(u32, Size)]) -> Snapshot {
        let service = |(at, (seen, (_, size))): (usize, (&Seen, &(u32, Size)))| ServiceUse {
            name: name(at),
            replicas: seen.replicas,
            cpu_millis: size.cpu_millis as u64,
            memory_mib: size.memory_mib as u64,
            cpu_limit_millis: Some(size.cpu_limit_millis as u64),
            cpu_used_millis: Some(seen.cpu_used_millis / f64::from(seen.replicas.max(1))),
            memory_used_mib: Some(seen.memory_used_mib),
            rps: Some(seen.rps),
            ..ServiceUse::default()
        };
        let edge = |(from, to, share): &(usize, usize, f64)| EdgeUse {
            from: name(*from),
            to: name(*to),
            rps: seen.get(*from).map_or(0.0, |seen| seen.rps * share),
            latency_ms: seen.get(*to).map_or(0.0, |seen| seen.latency_ms),
            ..EdgeUse::default()
        };
        Snapshot {
            services: seen.iter().zip(now).enumerate().map(service).collect(),
            edges: self.edges.iter().map(edge).collect(),
            room: None,
            ..Snapshot::default()
        }
    }
}

/// Returns a name whose alphabetical order is that of the indices.
fn name(at: usize) -> String {
    format!("s{at:04}")
}

impl Scaler for Advised {
    fn decide(&mut self, second: f64, seen: &[Seen], now: &mut [(u32, Size)]) {
        let snapshot = self.snapshot(seen, now);
        let at = Time::ZERO + Duration::try_from_secs_f64(second).unwrap_or_default();
        self.advisor.observe(at, &snapshot);
        for (advice, (replicas, size)) in self.advisor.advise().iter().zip(now) {
            *replicas = advice
                .replicas
                .as_ref()
                .map_or(*replicas, |advised| advised.value);
            if let Some(cpu) = &advice.cpu_millis {
                size.cpu_millis = cpu.value as f64;
            }
            if let Some(memory) = &advice.memory_mib {
                size.memory_mib = memory.value as f64;
            }
        }
    }
}
