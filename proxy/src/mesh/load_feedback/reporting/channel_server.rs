//! The server's end of a channel.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use maglor_balance::Time;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::LoadReporter;
use super::subscribers::Outbox;
use crate::mesh::load_feedback::queue_protocol::{Frame, FrameStream};
use crate::net::io::Stream;
use crate::runtime::worker::Worker;

/// Properties of the connection from which a channel was upgraded.
pub(crate) struct Host<'a> {
    pub(crate) worker: &'a Worker,
    /// Idle timeout of the channel.
    pub(crate) idle_timeout: Duration,
    /// Whether the client's reports to the ledger are trusted: all servers of one ledger belong to one workload.
    pub(crate) may_report: bool,
    /// Returns whether the connection should end. A change must wake the connection's task.
    pub(crate) is_draining: &'a dyn Fn() -> bool,
}

/// Serves a balancer or a reporting proxy until it disconnects, or this proxy drains.
pub(crate) async fn serve(stream: Stream, load_reporter: &LoadReporter, host: Host<'_>) {
    let (outbox, mut posted) = Outbox::new();
    let mut frames = FrameStream::new(stream);
    let mut answers = Vec::new();
    loop {
        let event = next_event(&mut frames, &mut posted, host.is_draining);
        match timeout(host.idle_timeout, event).await {
            Ok(Event::Filled) => {
                let now = host.worker.time(Instant::now());
                while let Some(frame) = frames.next() {
                    let answer = answer(load_reporter, &host, &frame, &outbox, now);
                    answers.extend(answer.into_iter().flat_map(|answer| answer.encode()));
                }
            }
            Ok(Event::Posted(frame)) => answers.extend(frame.encode()),
            Ok(Event::End) | Err(_) => return,
        }
        while let Ok(frame) = posted.try_recv() {
            answers.extend(frame.encode());
        }
        if !answers.is_empty() && frames.send(&answers).await.is_err() {
            return;
        }
        answers.clear();
    }
}

enum Event {
    End,
    Filled,
    Posted(Frame),
}

async fn next_event(
    frames: &mut FrameStream,
    posted: &mut mpsc::Receiver<Frame>,
    is_draining: &dyn Fn() -> bool,
) -> Event {
    let drained = poll_fn(|_| match is_draining() {
        true => Poll::Ready(()),
        false => Poll::Pending,
    });
    let posted = pin!(posted.recv());
    tokio::select! {
        biased;
        () = drained => Event::End,
        filled = frames.fill() => match filled {
            Ok(true) => Event::Filled,
            Ok(false) | Err(_) => Event::End,
        },
        Some(frame) = posted => Event::Posted(frame),
    }
}

fn answer(
    load_reporter: &LoadReporter,
    host: &Host<'_>,
    frame: &Frame,
    outbox: &Outbox,
    now: Time,
) -> Option<Frame> {
    match *frame {
        Frame::AskLoad { number } => Some(Frame::Load {
            number,
            load: load_reporter.load(),
        }),
        Frame::AskReferral { number, among } => Some(Frame::Referral {
            number,
            referral: host
                .worker
                .with_rng(|rng| load_reporter.refer(among, now, rng)),
        }),
        Frame::Subscribe { overhead } => {
            load_reporter.subscribers.add(overhead, outbox);
            Some(Frame::Load {
                number: 0,
                load: load_reporter.load(),
            })
        }
        Frame::Report { .. } if !host.may_report => {
            let shard = host.worker.shard();
            load_reporter.metrics.reports_refused.inc(shard);
            None
        }
        Frame::Report { from, report } => {
            load_reporter.reported(from, &report, Some(outbox), now);
            None
        }
        // Frames that only a balancer or a reporting proxy handles.
        Frame::Load { .. } | Frame::Referral { .. } | Frame::Audit { .. } => None,
    }
}
