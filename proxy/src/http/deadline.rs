//! The deadline of a request, from the route's timeout and those set by the client.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use maglor_config::route::RouteAction;
use tokio::time::{Instant, timeout_at};

use super::upload::Upload;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::message::Request;
use crate::telemetry::record::Moment;

/// Deadline of a request or an attempt. The time that a client takes to send its request does not count, so the
/// deadline moves while the request is being received.
#[derive(Clone, Debug)]
pub(super) struct Deadline {
    started: Instant,
    /// Timeout that starts when the client has sent the request, as the deadline of a request without a body.
    timeout: Moment,
    /// Instant that does not move with the request's body; `None` if there is none.
    fixed: Moment,
    upload: Option<Rc<Upload>>,
    /// Whether the client allows less time than the route.
    hurried: bool,
}

impl Deadline {
    /// Returns a deadline that never passes.
    pub(super) fn never(started: Instant) -> Self {
        Self {
            started,
            timeout: Moment::NONE,
            fixed: Moment::NONE,
            upload: None,
            hurried: false,
        }
    }

    /// Returns the deadline that the route and the client set for a request that arrived at `started`.
    pub(super) fn of(
        action: &RouteAction,
        request: &Request,
        upload: Option<Rc<Upload>>,
        started: Instant,
    ) -> Self {
        match action {
            RouteAction::Forward(forward) => {
                Self::new(forward.timeout, &request.fields, upload, started)
            }
            _ => Self::never(started),
        }
    }

    fn new(
        timeout: Option<Duration>,
        fields: &Fields,
        upload: Option<Rc<Upload>>,
        started: Instant,
    ) -> Self {
        let (expected, grpc) = (expected(fields), grpc_timeout(fields));
        let clients = lesser(expected, grpc);
        Self {
            started,
            timeout: lesser(timeout, expected).map_or(Moment::NONE, Moment::after),
            fixed: grpc.map_or(Moment::NONE, Moment::after),
            upload,
            hurried: clients.is_some_and(|clients| timeout.is_none_or(|own| clients < own)),
        }
    }

    /// Returns a deadline for the same request that allows `timeout` from now on, without any other limit.
    pub(super) fn restarted(&self, timeout: Duration, now: Instant) -> Self {
        Self {
            started: now,
            timeout: Moment::after(timeout),
            fixed: Moment::NONE,
            upload: self.upload.clone(),
            hurried: false,
        }
    }

    /// Returns when the request arrived, or the attempt began.
    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// Returns whether the client's own timeout is shorter than the route's.
    pub(super) fn is_hurried(&self) -> bool {
        self.hurried
    }

    /// Returns the instant of the deadline if the client sends nothing more; `None` if there is no deadline.
    pub(super) fn at(&self, now: Instant) -> Option<Instant> {
        let upload = self.upload.as_ref();
        let begun = upload.map_or(self.started, |upload| upload.end(now).max(self.started));
        let fixed = self.fixed.instant(self.started);
        let timeout = self.timeout.since_begin();
        lesser(timeout.map(|timeout| begun + timeout), fixed)
    }

    /// Returns whether the deadline has passed.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.at(now).is_some_and(|at| at <= now)
    }

    /// Awaits a future until the deadline; `None` if the deadline passes first.
    pub(super) async fn wait<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        loop {
            let Some(at) = self.at(Instant::now()) else {
                return Some(future.await);
            };
            match timeout_at(at, future.as_mut()).await {
                Ok(output) => return Some(output),
                Err(_) if self.is_over(Instant::now()) => return None,
                // The deadline has moved with the request's body.
                Err(_) => {}
            }
        }
    }

    /// Returns the upload of the request's body if the client waits for permission to send it.
    pub(super) fn held(&self) -> Option<Rc<Upload>> {
        let held = self.upload.as_ref();
        held.filter(|upload| upload.permits_body()).cloned()
    }

    /// Returns the upload of the request's body; `None` if there is no body.
    pub(super) fn upload(&self) -> Option<&Upload> {
        self.upload.as_deref()
    }
}

fn lesser<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Returns the client's timeout from `x-envoy-expected-rq-timeout-ms`. It also limits the attempts, and can
/// only shorten the route's timeout.
fn expected(fields: &Fields) -> Option<Duration> {
    let millis = fields
        .get(Known::XEnvoyExpectedRqTimeoutMs)
        .and_then(number);
    // In this field, 0 means no limit.
    millis
        .filter(|millis| *millis > 0)
        .map(Duration::from_millis)
}

/// Returns the client's timeout from `grpc-timeout`, which counts from the beginning of the call.
fn grpc_timeout(fields: &Fields) -> Option<Duration> {
    fields.get(Known::GrpcTimeout).and_then(parse_grpc_timeout)
}

/// Formats milliseconds as `grpc-timeout`: at most eight digits.
pub(super) fn grpc(millis: u64) -> Vec<u8> {
    const MOST: u64 = 99_999_999;
    let text = match millis {
        0..=MOST => format!("{millis}m"),
        _ => format!("{}S", (millis / 1000).min(MOST)),
    };
    text.into_bytes()
}

fn number(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// Parses at most eight digits and a unit.
fn parse_grpc_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.len() > 8 {
        return None;
    }
    let number = number(digits)?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use http_body::{Body as _, Frame, SizeHint};

    use super::*;
    use crate::protocol::error::ProxyError;
    use crate::protocol::message::{Body, Source};

    #[test]
    fn grpc_units() {
        for (text, nanos) in [
            ("1H", 3_600_000_000_000),
            ("2M", 120_000_000_000),
            ("3S", 3_000_000_000),
            ("4m", 4_000_000),
            ("5u", 5000),
            ("99999999n", 99_999_999),
        ] {
            let time = parse_grpc_timeout(text.as_bytes());
            assert_eq!(time, Some(Duration::from_nanos(nanos)), "{text}");
        }
        for millis in [1, 99_999_999, 100_000_000, 3_600_000_000] {
            let time = parse_grpc_timeout(&grpc(millis));
            assert_eq!(time, Some(Duration::from_millis(millis)));
        }
        assert_eq!(grpc(u64::MAX), b"99999999S");
        for bad in ["", "S", "1", "1s", "-1S", "123456789S", " 1S"] {
            assert_eq!(parse_grpc_timeout(bad.as_bytes()), None, "{bad}");
        }
    }

    /// Returns the time from the start of the request to the deadline, in milliseconds.
    fn left(deadline: &Deadline) -> Option<u128> {
        let at = deadline.at(deadline.started)?;
        Some((at - deadline.started).as_millis())
    }

    fn given(expected: &str, grpc: &str) -> Deadline {
        let mut fields = Fields::default();
        fields.push(Known::XEnvoyExpectedRqTimeoutMs, expected.as_bytes());
        fields.push(Known::GrpcTimeout, grpc.as_bytes());
        Deadline::new(None, &fields, None, Instant::now())
    }

    #[test]
    fn the_lesser_one_counts_and_zero_is_no_limit() {
        assert_eq!(left(&given("100", "1S")), Some(100));
        assert_eq!(left(&given("2000", "1S")), Some(1000));
        assert_eq!(left(&given("0", "1S")), Some(1000));
        assert_eq!(left(&given("x", "")), None);
    }

    #[test]
    fn a_client_hurries_that_allows_less_than_the_route() {
        let hurried = |route: Option<u64>, name: Known, value: &str| {
            let mut fields = Fields::default();
            fields.push(name, value.as_bytes());
            let route = route.map(Duration::from_millis);
            Deadline::new(route, &fields, None, Instant::now()).is_hurried()
        };
        let (expected, grpc) = (Known::XEnvoyExpectedRqTimeoutMs, Known::GrpcTimeout);
        assert!(hurried(Some(100), expected, "99") && hurried(None, expected, "99"));
        assert!(hurried(Some(100), grpc, "1m") && hurried(None, grpc, "1H"));
        assert!(!hurried(Some(100), expected, "100") && !hurried(Some(100), expected, "0"));
        assert!(!hurried(Some(100), grpc, "1S") && !hurried(None, grpc, "x"));
    }

    /// A body of one frame that becomes available on a signal.
    #[derive(Debug)]
    struct Late(Rc<Cell<bool>>);

    impl Source for Late {
        fn poll_frame(
            &mut self,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
            match self.0.get() {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        }

        fn is_end_stream(&self) -> bool {
            false
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::default()
        }
    }

    /// Returns a deadline of 100 ms, the request's body, and the signal that makes the body available.
    fn of_upload(fields: &Fields) -> (Deadline, Body, Rc<Cell<bool>>) {
        let come = Rc::new(Cell::new(false));
        let started = Instant::now();
        let mut body = Body::source(Box::new(Late(Rc::clone(&come))));
        let upload = Upload::watch(&mut body, fields, started, None);
        let timeout = Some(Duration::from_millis(100));
        (Deadline::new(timeout, fields, upload, started), body, come)
    }

    fn poll(body: &mut Body) {
        let cx = &mut Context::from_waker(Waker::noop());
        let _ = Pin::new(body).poll_frame(cx);
    }

    async fn after(millis: u64) -> Instant {
        tokio::time::advance(Duration::from_millis(millis)).await;
        Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_client_takes_to_send_its_request_does_not_count() {
        let (deadline, mut body, come) = of_upload(&Fields::default());
        poll(&mut body);
        assert!(!deadline.is_over(after(1000).await));
        come.set(true);
        poll(&mut body);
        assert!(!deadline.is_over(after(99).await));
        assert!(deadline.is_over(after(1).await));
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_take_before_they_ask_for_it_does() {
        let (deadline, mut body, _) = of_upload(&Fields::default());
        assert!(deadline.is_over(after(100).await));
        // The wait of the previous attempt for the body does not affect the next one.
        poll(&mut body);
        assert!(!deadline.is_over(Instant::now()));
        deadline.upload().unwrap().leave();
        assert!(deadline.is_over(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_permission_delays_no_attempt() {
        let mut fields = Fields::default();
        fields.push(Known::Expect, b"100-continue");
        let (deadline, mut body, _) = of_upload(&fields);
        poll(&mut body);
        assert!(deadline.is_over(after(100).await));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_goes_on_while_the_request_comes() {
        let (deadline, mut body, come) = of_upload(&Fields::default());
        poll(&mut body);
        let ends = async {
            tokio::time::sleep(Duration::from_millis(250)).await;
            come.set(true);
            poll(&mut body);
            tokio::time::sleep(Duration::from_millis(90)).await;
        };
        assert_eq!(deadline.wait(ends).await, Some(()));
        let never = std::future::pending::<()>();
        assert_eq!(deadline.wait(never).await, None);
        assert_eq!(deadline.started.elapsed().as_millis(), 350);
    }
}
