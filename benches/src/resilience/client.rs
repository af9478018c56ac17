//! The client: an open loop of `GET` requests, with as many in parallel as are due.
//!
//! Each request has a task. HTTP/1.1 requests take an idle connection or open one; HTTP/2 requests
//! share a few connections. Latency counts from the due time of a request, so stalls are always
//! visible.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use maglor_testkit::app::Caller;
use maglor_testkit::load_generator::Clock;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::{Doing, Error, Result};
use crate::scenario::Protocol;

/// The number of connections that HTTP/2 requests share: fewer streams on each than a proxy allows.
const H2_CONNECTIONS: usize = 16;

/// The outcome of one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    /// The due time, from the start of the run.
    pub(super) due: Duration,
    /// The time from `due` to the last byte.
    pub(super) latency: Duration,
    /// The status; 0 without an answer.
    pub(super) status: u16,
}

impl Sample {
    pub(super) fn is_ok(&self) -> bool {
        self.status == 200
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Client {
    target: SocketAddr,
    protocol: Protocol,
    caller: Caller,
    shared: RefCell<Vec<http2::SendRequest<Empty<Bytes>>>>,
    turn: Cell<usize>,
}

impl Client {
    pub(super) fn new(target: SocketAddr, protocol: Protocol) -> Rc<Self> {
        Rc::new(Self {
            target,
            protocol,
            caller: Caller::default(),
            shared: RefCell::default(),
            turn: Cell::new(0),
        })
    }

    /// Sends one request; returns the status of its answer once that is complete.
    pub(super) async fn get(&self) -> Result<u16> {
        match self.protocol {
            Protocol::H1 => {
                let host = self.target.to_string();
                let answer = self.caller.get(self.target, &host, "/", None).await;
                Ok(answer.map_err(Error::protocol)?.status)
            }
            Protocol::H2c => self.get_h2().await,
        }
    }

    async fn get_h2(&self) -> Result<u16> {
        let mut sender = self.stream().await?;
        let request = Request::get(format!("http://{}/", self.target));
        let request = request.body(Empty::new()).map_err(Error::protocol)?;
        whole(
            sender
                .send_request(request)
                .await
                .map_err(Error::protocol)?,
        )
        .await
    }

    /// Returns the next shared connection in turn; opens one if it is closed or missing.
    async fn stream(&self) -> Result<http2::SendRequest<Empty<Bytes>>> {
        let turn = self.turn.get();
        self.turn.set((turn + 1) % H2_CONNECTIONS);
        let known = self.shared.borrow().get(turn).cloned();
        if let Some(sender) = known.filter(http2::SendRequest::is_ready) {
            return Ok(sender);
        }
        let io = TokioIo::new(connect(self.target).await?);
        let handshake = http2::handshake(TokioExecutor::new(), io).await;
        let (sender, connection) = handshake.map_err(Error::protocol)?;
        tokio::task::spawn_local(connection);
        let mut shared = self.shared.borrow_mut();
        match shared.get_mut(turn) {
            Some(old) => *old = sender.clone(),
            None => shared.push(sender.clone()),
        }
        Ok(sender)
    }

    /// Closes idle connections.
    pub(super) fn close(&self) {
        self.caller.close();
        self.shared.borrow_mut().clear();
    }

    /// Sends a request at each of the due times after `began`. Requests without an answer
    /// `patience` after the last due time count as failed.
    pub(super) async fn load(
        self: &Rc<Self>,
        due: &[Duration],
        began: Instant,
        patience: Duration,
    ) -> Result<Vec<Sample>> {
        let clock = Clock::new().doing("start the pacing timer")?;
        let samples = Rc::new(RefCell::new(Vec::with_capacity(due.len())));
        let mut under_way = JoinSet::new();
        for &due in due {
            clock
                .sleep_until(began + due)
                .await
                .doing("wait for a request's time")?;
            let (client, samples) = (Rc::clone(self), Rc::clone(&samples));
            under_way.spawn_local(async move {
                let result = client.get().await;
                let latency = began.elapsed().saturating_sub(due);
                let status = result.unwrap_or_default();
                samples.borrow_mut().push(Sample {
                    due,
                    latency,
                    status,
                });
            });
            // Results of finished tasks are not kept.
            while under_way.try_join_next().is_some() {}
        }
        let ended = async { while under_way.join_next().await.is_some() {} };
        let _ = timeout(patience, ended).await;
        under_way.shutdown().await;
        let mut samples = samples.take();
        samples.extend(missing(due, &samples, began.elapsed()));
        samples.sort_by_key(|sample| sample.due);
        Ok(samples)
    }
}

/// Returns the requests without an answer.
fn missing(due: &[Duration], samples: &[Sample], now: Duration) -> Vec<Sample> {
    let answered: std::collections::HashSet<_> = samples.iter().map(|one| one.due).collect();
    let lacking = due.iter().filter(|due| !answered.contains(due));
    let sample = |&due: &Duration| Sample {
        due,
        latency: now.saturating_sub(due),
        status: 0,
    };
    lacking.map(sample).collect()
}

async fn connect(target: SocketAddr) -> Result<TcpStream> {
    let what = || format!("connect to {target}");
    let stream = TcpStream::connect(target).await.doing(what())?;
    stream.set_nodelay(true).doing(what())?;
    Ok(stream)
}

/// Reads the answer to its end.
async fn whole(answer: Response<Incoming>) -> Result<u16> {
    let status = answer.status().as_u16();
    answer
        .into_body()
        .collect()
        .await
        .map_err(Error::protocol)?;
    Ok(status)
}
