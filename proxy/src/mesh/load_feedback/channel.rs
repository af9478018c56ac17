//! The client's end of a channel: from one worker to one endpoint's inbound proxy.
//!
//! A channel is opened on demand and closed when idle. A query that cannot be sent fails immediately. An endpoint
//! that refuses the protocol is not queried again for a minute.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hashbrown::HashMap;
use http::{Method, StatusCode};
use maglor_balance::Index;
use maglor_balance::queue_protocol::{Answer, Load, Name, Question, Report};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use crate::mesh::load_feedback::queue_protocol::{Frame, FrameStream, PROTOCOL, Reporter};
use crate::net::io::{Io, Stream};
use crate::protocol::fields::Known;
use crate::protocol::http1::{self, Limits};
use crate::runtime::worker::Worker;
use crate::upstream::connect_channel;
use crate::upstream::{Cluster, Target};

/// Pause after a failed connection. It doubles with each further failure, up to the maximum.
const BACK_OFF: Duration = Duration::from_millis(50);
const MAX_BACK_OFF: Duration = Duration::from_secs(5);
/// Idle timeout of a channel.
const IDLE: Duration = Duration::from_secs(120);
/// Maximum number of unsent bytes; more means that the peer does not read.
const BACKLOG: usize = 64 * 1024;
/// Number of pending queries above which abandoned ones are dropped.
const PENDING: usize = 4096;
/// Limits of the response to the upgrade request.
const HEAD: Limits = Limits {
    bytes: 8 * 1024,
    headers: 64,
};

/// An answer, and the index of the endpoint that sent it.
pub(crate) type ChannelAnswer = (Index, Answer);

/// A channel to one endpoint.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The cluster at the last use. A channel outlives a configuration.
    cluster: RefCell<Weak<Cluster>>,
    target: Weak<Target>,
    worker: Rc<Worker>,
    state: Cell<State>,
    failures: Cell<u32>,
    output: RefCell<BytesMut>,
    wake: Notify,
    numbers: Cell<u32>,
    pending: RefCell<HashMap<u32, (Index, mpsc::Sender<ChannelAnswer>)>>,
    /// Messages per request for which this balancer has subscribed; `None` without a subscription.
    subscription: Cell<Option<f32>>,
    /// Whether the endpoint's proxy has reported its load.
    has_reported: Cell<bool>,
    /// Source of the reports that are sent on this channel; `None` if there is none.
    reporter: RefCell<Option<Arc<dyn Reporter>>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Closed,
    /// Closed after a failure, and not reopened before this time.
    Shunned(Instant),
    /// Being opened, or open.
    Running,
    Ended,
}

impl Channel {
    pub(crate) fn new(
        cluster: &Arc<Cluster>,
        target: &Arc<Target>,
        worker: &Rc<Worker>,
    ) -> Rc<Self> {
        Rc::new(Self {
            cluster: RefCell::new(Arc::downgrade(cluster)),
            target: Arc::downgrade(target),
            worker: Rc::clone(worker),
            state: Cell::new(State::Closed),
            failures: Cell::new(0),
            output: RefCell::default(),
            wake: Notify::new(),
            numbers: Cell::new(0),
            pending: RefCell::default(),
            subscription: Cell::new(None),
            has_reported: Cell::new(false),
            reporter: RefCell::default(),
        })
    }

    /// Switches to the cluster's current configuration.
    pub(crate) fn follow(&self, cluster: &Arc<Cluster>) {
        let mut known = self.cluster.borrow_mut();
        if known.as_ptr() != Arc::as_ptr(cluster) {
            *known = Arc::downgrade(cluster);
        }
    }

    fn cluster(&self) -> Option<Arc<Cluster>> {
        self.cluster.borrow().upgrade()
    }

    /// Sends a query; the answer is sent to `answers`. Returns false if there will be no answer.
    pub(crate) fn ask(
        self: &Rc<Self>,
        of: Index,
        question: Question,
        answers: &mpsc::Sender<ChannelAnswer>,
    ) -> bool {
        let number = self.numbers.get().wrapping_add(1).max(1);
        self.numbers.set(number);
        let frame = match question {
            Question::Load => Frame::AskLoad { number },
            Question::Referral => Frame::AskReferral {
                number,
                among: None,
            },
            Question::ReferralAmong(among) => Frame::AskReferral {
                number,
                among: Some(among),
            },
        };
        {
            let mut pending = self.pending.borrow_mut();
            if pending.len() >= PENDING {
                pending.retain(|_, (_, answers)| !answers.is_closed());
            }
            pending.insert(number, (of, answers.clone()));
        }
        let sent = self.send(&frame);
        if !sent {
            self.pending.borrow_mut().remove(&number);
        }
        sent
    }

    /// Subscribes to the endpoint's load.
    pub(crate) fn subscribe(self: &Rc<Self>, overhead: f32) {
        if self.subscription.replace(Some(overhead)) != Some(overhead) {
            self.send(&Frame::Subscribe { overhead });
        }
    }

    /// Reports the load of the server behind `reporter` to the host of a ledger, which may also request further
    /// reports.
    pub(crate) fn report(
        self: &Rc<Self>,
        own: Name,
        report: &Report,
        reporter: impl FnOnce() -> Arc<dyn Reporter>,
    ) {
        self.reporter.borrow_mut().get_or_insert_with(reporter);
        self.send(&Frame::Report {
            from: own,
            report: *report,
        });
    }

    /// Reopens a broken channel that has a subscription.
    pub(crate) fn maintain(self: &Rc<Self>) {
        if self.subscription.get().is_some() {
            self.open();
        }
    }

    /// Returns whether the endpoint was removed from its cluster.
    pub(super) fn is_of_gone_endpoint(&self) -> bool {
        self.target.strong_count() == 0
    }

    /// Closes the channel permanently.
    pub(crate) fn close(&self) {
        self.state.set(State::Ended);
        self.wake.notify_one();
    }

    fn send(self: &Rc<Self>, frame: &Frame) -> bool {
        if !self.open() || self.output.borrow().len() >= BACKLOG {
            return false;
        }
        self.output.borrow_mut().extend_from_slice(&frame.encode());
        self.wake.notify_one();
        true
    }

    /// Opens the channel if necessary; returns whether it is open or opening.
    fn open(self: &Rc<Self>) -> bool {
        match self.state.get() {
            State::Running => return true,
            State::Ended => return false,
            State::Shunned(until) if Instant::now() < until => return false,
            State::Shunned(_) | State::Closed => {}
        }
        let now = self.worker.time(Instant::now());
        if self
            .target
            .upgrade()
            .is_none_or(|target| target.lacks_queue_protocol(now))
        {
            return false;
        }
        self.state.set(State::Running);
        tokio::task::spawn_local(run(Rc::clone(self)));
        true
    }

    fn closed(&self, how: Closed) {
        self.output.borrow_mut().clear();
        // Closes the senders, so that their receivers get no answer.
        self.pending.borrow_mut().clear();
        if let Some(target) = self.target.upgrade() {
            if how == Closed::Refused {
                target.set_lacks_queue_protocol(true, self.worker.time(Instant::now()));
            }
            if self.has_reported.take() {
                // Reset, since no later report will correct the value.
                target.stats.report(0);
            }
        }
        if self.state.get() == State::Ended {
            return;
        }
        self.state.set(match how {
            Closed::Idle | Closed::Refused => State::Closed,
            Closed::Failed => {
                let failures = self.failures.get();
                self.failures.set(failures.saturating_add(1));
                let pause = (BACK_OFF * (1 << failures.min(8))).min(MAX_BACK_OFF);
                State::Shunned(Instant::now() + pause)
            }
        });
    }

    fn take(&self, frame: &Frame) {
        match *frame {
            Frame::Load { number: 0, load } => self.take_load(&load),
            Frame::Load { number, load } => self.answered(number, Answer::Load(load)),
            Frame::Referral { number, referral } => {
                self.answered(number, Answer::Referral(referral));
            }
            Frame::Audit { of } => {
                if let Some(reporter) = &*self.reporter.borrow() {
                    let report = Frame::Report {
                        from: of,
                        report: reporter.report(),
                    };
                    self.output.borrow_mut().extend_from_slice(&report.encode());
                }
            }
            // Frames that only a server's proxy handles.
            Frame::AskLoad { .. }
            | Frame::AskReferral { .. }
            | Frame::Subscribe { .. }
            | Frame::Report { .. } => {}
        }
    }

    fn take_load(&self, load: &Load) {
        let (Some(cluster), Some(target)) = (self.cluster(), self.target.upgrade()) else {
            return;
        };
        if let Some(metrics) = cluster.queue_protocol() {
            metrics.loads.inc(self.worker.shard());
        }
        self.has_reported.set(true);
        target.stats.report(load.in_flight);
    }

    fn answered(&self, number: u32, answer: Answer) {
        // The query of a late answer is no longer pending, or its receiver has been dropped.
        if let Some((of, answers)) = self.pending.borrow_mut().remove(&number) {
            let _ = answers.try_send((of, answer));
        }
    }
}

/// How a channel was closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Closed {
    Failed,
    Idle,
    /// The endpoint does not support the protocol.
    Refused,
}

async fn run(channel: Rc<Channel>) {
    let how = match establish(&channel).await {
        Ok(Some(frames)) => {
            let begun = Instant::now();
            let how = serve_channel(&channel, frames).await;
            // A channel that ends immediately counts as a failure to connect.
            if begun.elapsed() >= MAX_BACK_OFF {
                channel.failures.set(0);
            }
            how
        }
        Ok(None) => Closed::Refused,
        Err(error) => {
            tracing::debug!(%error, "cannot open a channel to an endpoint");
            Closed::Failed
        }
    };
    channel.closed(how);
}

/// Connects and upgrades from HTTP; `None` if the endpoint refuses.
async fn establish(channel: &Channel) -> io::Result<Option<FrameStream>> {
    let (Some(cluster), Some(target)) = (channel.cluster(), channel.target.upgrade()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let limit = cluster.config().connect_timeout;
    let greeting = async {
        let io = connect_channel(&cluster, &target).await?;
        greet(io, target.address.to_string()).await
    };
    timeout(limit, greeting).await?
}

async fn greet(mut io: Io, host: String) -> io::Result<Option<FrameStream>> {
    let mut request = BytesMut::new();
    for part in [
        &b"GET /.well-known/maglor/exchange HTTP/1.1\r\nhost: "[..],
        host.as_bytes(),
        b"\r\nconnection: upgrade\r\nupgrade: ",
        PROTOCOL,
        b"\r\n\r\n",
    ] {
        request.extend_from_slice(part);
    }
    io.write_all(&request).await?;
    io.flush().await?;
    let mut input = BytesMut::new();
    loop {
        if io.read_buf(&mut input).await? == 0 {
            return Ok(None);
        }
        let parsed = http1::parse_response(&input, HEAD, &Method::GET);
        let Ok(parsed) = parsed else { return Ok(None) };
        if let Some((head, length)) = parsed {
            let agreed = head.status == StatusCode::SWITCHING_PROTOCOLS
                && head.fields.get(Known::Upgrade) == Some(PROTOCOL);
            input.advance(length);
            let prefix: Bytes = input.freeze();
            let stream = Stream {
                io,
                prefix,
                guard: None,
            };
            return Ok(agreed.then(|| FrameStream::new(stream)));
        }
    }
}

async fn serve_channel(channel: &Channel, mut frames: FrameStream) -> Closed {
    if let Some(overhead) = channel.subscription.get() {
        let subscribe = Frame::Subscribe { overhead };
        channel
            .output
            .borrow_mut()
            .extend_from_slice(&subscribe.encode());
    }
    loop {
        while let Some(frame) = frames.next() {
            channel.take(&frame);
        }
        let output = channel.output.borrow_mut().split();
        if !output.is_empty() && frames.send(&output).await.is_err() {
            return Closed::Failed;
        }
        if channel.state.get() == State::Ended {
            return Closed::Idle;
        }
        let moved = async {
            tokio::select! {
                filled = frames.fill() => matches!(filled, Ok(true)),
                () = channel.wake.notified() => true,
            }
        };
        match timeout(IDLE, moved).await {
            Ok(true) => {}
            Ok(false) => return Closed::Failed,
            Err(_) => return Closed::Idle,
        }
    }
}
