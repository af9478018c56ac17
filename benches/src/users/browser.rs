//! Users with a browser: a closed loop of requests for the product page, each of which is looked at.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use maglor_testkit::cluster::Cluster;
use maglor_testkit::load_generator::closed::{self, Users};
use maglor_testkit::load_generator::{Observer, Sample, Session};
use tokio::net::TcpStream;

use crate::error::Result;
use crate::http::block_on;

/// A page that is not whole by then has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The users of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) entry: SocketAddr,
    pub(super) users: u32,
    pub(super) ramp: Duration,
    pub(super) length: Duration,
    pub(super) think: Duration,
}

/// What a user saw.
#[derive(Debug, Clone, Copy, Eq, PartialEq)]
pub(super) enum Outcome {
    /// Details and reviews.
    Whole,
    /// Status 200, but the page says that details, reviews or ratings are not available.
    Partial,
    /// No page.
    Failed,
}

/// A page, or a failure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// When it was sent, since the begin of the run.
    pub(super) sent: Duration,
    pub(super) latency: Duration,
    pub(super) outcome: Outcome,
}

/// Starts the users on a thread of their own, which ends when the last response has arrived.
pub(super) fn start(cluster: &Cluster, load: Load) -> Result<JoinHandle<Result<Vec<Seen>>>> {
    // The thread inherits the network of the thread that starts it.
    let spawned = cluster.in_network(move || std::thread::spawn(move || block_on(run(load))));
    Ok(spawned?)
}

/// Requests a page once, from outside the cluster.
pub(super) fn page(cluster: &Cluster, entry: SocketAddr) -> Result<(Outcome, Duration)> {
    let seen = cluster.in_network(move || {
        block_on(async {
            let began = Instant::now();
            let result = Browser::new(entry).round_trip().await;
            Ok((outcome(&result), began.elapsed()))
        })
    });
    seen?
}

async fn run(load: Load) -> Result<Vec<Seen>> {
    let notes = Rc::new(Notes {
        began: Instant::now(),
        length: load.ramp + load.length,
        seen: RefCell::default(),
    });
    let behaviour = Users {
        ramp: load.ramp,
        think: load.think,
    };
    let browsers = (0..load.users).map(|_| Browser::new(load.entry)).collect();
    let mut users = closed::start(browsers, behaviour, &notes);
    tokio::time::sleep(load.ramp + load.length).await;
    // Users who are thinking send nothing any more; the others wait for their responses.
    let left = async { while users.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(PATIENCE.max(load.think), left).await;
    Ok(notes.seen.take())
}

/// All responses.
struct Notes {
    began: Instant,
    length: Duration,
    seen: RefCell<Vec<Seen>>,
}

impl Observer for Notes {
    fn ended<E: fmt::Display>(
        &self,
        sample: Sample,
        result: std::result::Result<(), E>,
    ) -> ControlFlow<()> {
        let sent = sample.due.saturating_duration_since(self.began);
        if sent < self.length {
            self.seen.borrow_mut().push(Seen {
                sent,
                latency: sample.latency(),
                outcome: outcome(&result),
            });
        }
        match self.began.elapsed() < self.length {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    fn missed(&self, _due: Instant) {}
}

const PARTIAL: &str = "a part of the page is not available";

/// An observer does not know the type of the error, only its text.
fn outcome<E: fmt::Display>(result: &std::result::Result<(), E>) -> Outcome {
    match result {
        Ok(()) => Outcome::Whole,
        Err(error) if error.to_string() == PARTIAL => Outcome::Partial,
        Err(_) => Outcome::Failed,
    }
}

/// The reason why a page is not whole.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error("the connection failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("{PARTIAL}")]
    Partial,
    #[error("status {0}")]
    Status(u16),
    #[error("no page in time")]
    Timeout,
}

/// A user's browser. It keeps its connection until the server closes it.
struct Browser {
    entry: SocketAddr,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

impl Browser {
    fn new(entry: SocketAddr) -> Self {
        Self {
            entry,
            connection: None,
        }
    }

    async fn connect(&self) -> std::result::Result<SendRequest<Empty<Bytes>>, Failure> {
        let stream = TcpStream::connect(self.entry).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::task::spawn_local(async {
            // Its failure is one of the request.
            let _ = connection.await;
        });
        Ok(sender)
    }

    async fn load(&mut self) -> std::result::Result<(), Failure> {
        let mut connection = match self.connection.take() {
            Some(kept) if kept.is_ready() => kept,
            _ => self.connect().await?,
        };
        let request = Request::get("/productpage").header(HOST, self.entry.to_string());
        let request = request.body(Empty::new());
        let request = request.unwrap_or_else(|_| Request::new(Empty::new()));
        let response = connection.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        self.connection = Some(connection);
        match status {
            200 if is_whole(&body) => Ok(()),
            200 => Err(Failure::Partial),
            status => Err(Failure::Status(status)),
        }
    }
}

impl Session for Browser {
    type Error = Failure;

    async fn round_trip(&mut self) -> std::result::Result<(), Failure> {
        let page = tokio::time::timeout(PATIENCE, self.load()).await;
        page.unwrap_or(Err(Failure::Timeout))
    }
}

/// Whether the page has details and reviews, and those ratings that its version of the reviews shows.
fn is_whole(page: &[u8]) -> bool {
    let has = |text: &str| memchr::memmem::find(page, text.as_bytes()).is_some();
    has("ISBN-10") && has("Reviews served by") && !has("Ratings service is currently unavailable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_page_can_be_missing() {
        assert!(is_whole(b".. ISBN-10 .. Reviews served by: .."));
        assert!(!is_whole(b".. ISBN-10 .. Error fetching product reviews"));
        assert!(!is_whole(b"Reviews served by: .."));
        let without = b"ISBN-10, Reviews served by: , Ratings service is currently unavailable";
        assert!(!is_whole(without));
        assert_eq!(Failure::Partial.to_string(), PARTIAL);
        assert_eq!(outcome(&Err(Failure::Partial)), Outcome::Partial);
        assert_eq!(outcome(&Err(Failure::Timeout)), Outcome::Failed);
    }
}
