//! Makes changes at a rate, and collects their delays.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::Kubectl;
use tokio::sync::mpsc;

use super::api::{Connection, Place, Pod, Proxy};
use super::follower::Board;
use super::ledger::{self, Delays};
use super::options::{Options, Through};
use super::slices;
use crate::error::{Error, Result};

/// The number of concurrent changes.
const WRITERS: usize = 8;
/// The time after which changes that were not received count as lost.
const SILENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// The changes at one rate, and their delays.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) through: Through,
    /// The intended changes per second.
    pub(super) rate: u32,
    pub(super) changes: usize,
    /// Changes that a client has never received.
    pub(super) unknown: usize,
    /// The time from the first change until the last one was received.
    pub(super) took: Duration,
    pub(super) delays: Delays,
    /// The processor time of the controller.
    pub(super) cpu: Duration,
}

/// The source of the changes.
#[derive(Debug)]
pub(super) struct Changes {
    pods: BTreeMap<u32, Vec<Pod>>,
    /// The clients that use each Service.
    users: BTreeMap<u32, Vec<u32>>,
    /// The positions of pods in their slices, if those are changed.
    places: HashMap<String, Place>,
    board: Rc<Board>,
    /// The number of changes made.
    made: u32,
}

/// A change to be written: its number, the pod, whether it is ready.
type Todo = (usize, Pod, bool);

impl Changes {
    pub(super) fn new(options: &Options, pods: BTreeMap<u32, Vec<Pod>>, board: &Rc<Board>) -> Self {
        let used = (0..options.proxies).map(|proxy| (proxy, options.used_by(proxy)));
        Self {
            pods,
            users: ledger::users(used),
            places: HashMap::new(),
            board: Rc::clone(board),
            made: 0,
        }
    }

    /// Takes over the slices from Kubernetes' own controller, which ignores Services without
    /// selectors.
    pub(super) async fn take_slices(&mut self, proxy: &Proxy, kubectl: &Kubectl) -> Result<()> {
        let mut connection = Connection::open(proxy.address).await?;
        for service in self.users.keys() {
            connection.take_selector(*service).await?;
        }
        self.places = slices::places(kubectl)?;
        Ok(())
    }

    /// Makes changes at a rate, and waits until all clients of the Services have received them, or
    /// no client receives anything any more.
    pub(super) async fn make(
        &mut self,
        proxy: &Proxy,
        (through, rate): (Through, u32),
        count: u32,
    ) -> Result<Series> {
        let first = self.board.ledger.borrow().len();
        let (failures, mut failed) = mpsc::unbounded_channel();
        let mut writers = Vec::new();
        for _ in 0..WRITERS {
            writers.push(self.writer(proxy, through, failures.clone()).await?);
        }
        let begin = Instant::now();
        let pause = Duration::from_secs(1) / rate;
        for step in 0..count {
            let (service, pod, ready) = self.next()?;
            let due = begin + pause * step;
            tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
            let change = {
                let mut ledger = self.board.ledger.borrow_mut();
                ledger.begin(service, &pod.address, ready, &self.users[&service])
            };
            let writer = &writers[step as usize % writers.len()];
            let _ = writer.send((change, pod, ready));
            if let Ok(error) = failed.try_recv() {
                return Err(error);
            }
        }
        self.settle(&mut failed).await?;
        let ledger = self.board.ledger.borrow();
        Ok(Series {
            through,
            rate,
            changes: ledger.len() - first,
            unknown: ledger.unknown(first),
            took: begin.elapsed(),
            delays: ledger.delays(first),
            cpu: Duration::ZERO,
        })
    }

    /// Returns the next pod to become ready, or not ready. A pod becomes unready in one round
    /// through the Services, and ready again in the next one.
    fn next(&mut self) -> Result<(u32, Pod, bool)> {
        let services = u32::try_from(self.users.len()).unwrap_or(u32::MAX).max(1);
        let (round, place) = (self.made / services, self.made % services);
        self.made += 1;
        let service = self.users.keys().nth(place as usize).copied();
        let service = service.unwrap_or_default();
        let Some(pods) = self.pods.get(&service).filter(|pods| !pods.is_empty()) else {
            return Err(Error::parse("pods", format!("s{service} has none")));
        };
        let pod = &pods[(round / 2) as usize % pods.len()];
        Ok((service, pod.clone(), round % 2 == 1))
    }

    async fn settle(&self, failed: &mut mpsc::UnboundedReceiver<Error>) -> Result<()> {
        let mut heard = (self.board.resources.get(), Instant::now());
        while self.board.ledger.borrow().open() > 0 {
            if let Ok(error) = failed.try_recv() {
                return Err(error);
            }
            let now = self.board.resources.get();
            if now != heard.0 {
                heard = (now, Instant::now());
            }
            if heard.1.elapsed() > SILENCE {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The source of changes: commands are executed in order.
    async fn writer(
        &self,
        proxy: &Proxy,
        through: Through,
        failures: mpsc::UnboundedSender<Error>,
    ) -> Result<mpsc::UnboundedSender<Todo>> {
        let (sender, mut todo) = mpsc::unbounded_channel::<Todo>();
        let mut connection = Connection::open(proxy.address).await?;
        let board = Rc::clone(&self.board);
        let places = match through {
            Through::Pods => HashMap::new(),
            Through::Slices => self.places.clone(),
        };
        tokio::task::spawn_local(async move {
            while let Some((change, pod, ready)) = todo.recv().await {
                let written = match (through, places.get(&pod.address)) {
                    (Through::Pods, _) => connection.set_ready(&pod.name, ready).await,
                    (Through::Slices, Some(place)) => connection.set_in_slice(place, ready).await,
                    (Through::Slices, None) => Err(Error::parse("a slice of", pod.address)),
                };
                match written {
                    Ok(()) => board.ledger.borrow_mut().accepted(change, Instant::now()),
                    Err(error) => drop(failures.send(error)),
                }
            }
        });
        Ok(sender)
    }
}
