//! The load: users of the ingress who arrive at random moments, independently of earlier requests.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use maglor_balance::Rng;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::record::Record;
use crate::demo::client::Client;
use crate::demo::exponential;

/// The limit of requests in progress; beyond that arrivals wait, so that the demo stays a small
/// load in any case.
const MOST_UNDER_WAY: u32 = 500;
const SEED: u64 = 0x626f_6f6b;

/// Requests to the ingress.
#[derive(Debug)]
pub(super) struct Load {
    client: Rc<Client>,
    record: Rc<RefCell<Record>>,
    places: Arc<Semaphore>,
}

impl Load {
    pub(super) fn new(client: Client, record: &Rc<RefCell<Record>>) -> Self {
        Self {
            client: Rc::new(client),
            record: Rc::clone(record),
            places: Arc::new(Semaphore::new(MOST_UNDER_WAY as usize)),
        }
    }

    /// Sends requests at random moments (a Poisson process) for this long. A latency begins at the
    /// moment at which its request was due: a late start counts.
    pub(super) async fn arrivals(&self, rate: f64, length: Duration) {
        let mut rng = Rng::seed(SEED);
        let mut due = Instant::now();
        let end = due + length;
        loop {
            due += Duration::from_secs_f64(exponential(&mut rng) / rate);
            tokio::time::sleep_until(due.min(end)).await;
            if due >= end {
                return;
            }
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                return; // never: it is not closed
            };
            let mut request = Client::request("/productpage");
            if let Ok(trace) = HeaderValue::try_from(trace(&mut rng)) {
                request.headers_mut().insert("traceparent", trace);
            }
            let (client, record) = (Rc::clone(&self.client), Rc::clone(&self.record));
            let stage = record.borrow().stages.len().saturating_sub(1);
            tokio::task::spawn_local(async move {
                let answer = client.send(request).await;
                let outcome = answer.as_ref().map(|_| due.elapsed());
                record.borrow_mut().page(stage, outcome);
                drop(place);
            });
        }
    }

    /// Waits for the requests in progress.
    pub(super) async fn all_answered(&self) {
        drop(self.places.acquire_many(MOST_UNDER_WAY).await);
    }
}

/// Returns the context of a trace that begins with the user (W3C Trace Context, version 00,
/// sampled).
fn trace(rng: &mut Rng) -> String {
    let mut part = || rng.next_u64().max(1);
    format!("00-{:016x}{:016x}-{:016x}-01", part(), part(), part())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_the_form_of_the_standard() {
        let text = trace(&mut Rng::seed(1));
        let lengths: Vec<_> = text.split('-').map(str::len).collect();
        assert_eq!(lengths, [2, 32, 16, 2], "{text}");
    }
}
