//! Executes the plan: load, events at their times, typed lines, frames.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::Error;
use super::fault::Line;
use super::fleet::Fleet;
use super::flow::Flows;
use super::intruders::intrude;
use super::load::Load;
use super::plan::{Event, Plan};
use super::prompt;
use super::record::Record;
use super::screen::Screen;
use super::services::INGRESS;
use crate::demo::client::Client;
use crate::demo::stop::Stop;

const FRAME: Duration = Duration::from_secs(1);
/// The time within which the proxies have sent the spans of ended requests: twice the longest wait for a batch.
const SPANS_ARE_SENT: Duration = Duration::from_secs(2);

/// The state for executing events.
struct Director<'a> {
    plan: &'a Plan,
    fleet: &'a mut Fleet,
    record: Rc<RefCell<Record>>,
    screen: &'a mut Screen,
}

/// Runs the plan, until it is stopped.
pub(super) async fn run(
    plan: &Plan,
    rate: f64,
    fleet: &mut Fleet,
    screen: &mut Screen,
    stop: &Stop,
) -> Result<Record, Error> {
    let record = Rc::new(RefCell::new(Record::new()));
    let client = Client::new(fleet.ingress, INGRESS);
    let load = Rc::new(Load::new(client, &record));
    let mut director = Director {
        plan,
        fleet,
        record: Rc::clone(&record),
        screen,
    };
    let mut events: VecDeque<_> = plan.events.iter().cloned().collect();
    // Counts of the proxies' start belong to no stage.
    director.fleet.look(&mut Flows::new()).await;
    let started = Instant::now();
    director.due(&mut events, Duration::ZERO).await?;
    let (sender, length) = (Rc::clone(&load), plan.length);
    let mut arrivals = tokio::task::spawn_local(async move { sender.arrivals(rate, length).await });
    let mut frames = tokio::time::interval_at(started + FRAME, FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lines = prompt::lines();
    loop {
        let next = events.front().map_or(plan.length, |(after, _)| *after);
        tokio::select! {
            biased;
            () = stop.wait() => break,
            _ = &mut arrivals => break,
            Some(line) = lines.recv() => match line {
                Ok(Line::Fault(fault)) => director.ask(fault).await?,
                Ok(Line::Help) => director.screen.note(prompt::commands!().trim_start()),
                Ok(Line::Quit) => break,
                Err(error) => director.screen.note(&error.to_string()),
            },
            () = tokio::time::sleep_until(started + next), if !events.is_empty() && next < plan.length => {
                director.due(&mut events, next).await?;
            }
            _ = frames.tick() => director.frame(started.elapsed()).await?,
        }
    }
    arrivals.abort();
    let ended_early = started.elapsed() < plan.length;
    record.borrow_mut().end();
    load.all_answered().await;
    record.borrow_mut().ended_early = ended_early;
    if !ended_early {
        director.due(&mut events, plan.length).await?;
    }
    if director.fleet.is_traced {
        tokio::time::sleep(SPANS_ARE_SENT).await;
    }
    director.close().await;
    drop((director, load));
    Ok(std::mem::replace(&mut *record.borrow_mut(), Record::new()))
}

impl Director<'_> {
    /// Executes all events that are due.
    async fn due(
        &mut self,
        events: &mut VecDeque<(Duration, Event)>,
        now: Duration,
    ) -> Result<(), Error> {
        while events.front().is_some_and(|(after, _)| *after <= now) {
            let Some((_, event)) = events.pop_front() else {
                return Ok(());
            };
            let mut flows = Flows::new();
            match event {
                Event::Fault(fault) => self.fleet.apply(fault, &mut flows).await?,
                Event::Intrude => {
                    let attempts = intrude(self.fleet, &mut flows).await?;
                    self.record.borrow_mut().attempts.extend(attempts);
                }
                Event::Stage(title) => {
                    self.close().await;
                    self.screen.title(&title);
                    self.record.borrow_mut().begin(title);
                }
            }
            self.record.borrow_mut().flows(&flows);
        }
        Ok(())
    }

    /// Executes a fault from standard input: it is a stage of its own.
    async fn ask(&mut self, fault: super::fault::Fault) -> Result<(), Error> {
        if !self.plan.has(fault.replica) {
            self.screen.note(&format!("there is no {}", fault.replica));
            return Ok(());
        }
        let stage = Event::Stage(fault.to_string());
        let events = [stage, Event::Fault(fault)].map(|event| (Duration::ZERO, event));
        self.due(&mut VecDeque::from(events), Duration::ZERO).await
    }

    async fn frame(&mut self, since: Duration) -> Result<(), Error> {
        for note in self.fleet.revive().await? {
            self.screen.note(&note);
        }
        self.look().await;
        let (pages, flows) = self.record.borrow_mut().take_recent();
        self.screen.draw(since, &pages, &flows);
        Ok(())
    }

    async fn look(&mut self) {
        let mut flows = Flows::new();
        self.fleet.look(&mut flows).await;
        self.record.borrow_mut().flows(&flows);
    }

    /// Adds the counts until now to the stage that ends.
    async fn close(&mut self) {
        self.look().await;
        self.record.borrow_mut().end();
    }
}
