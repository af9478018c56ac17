//! State shared by the connections of a run: counters, histogram, the measured window.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use maglor_testkit::load_generator::record::Latencies;
use maglor_testkit::load_generator::{Observer, Sample};

use super::Report;
use crate::error::Result;
use crate::procfs::{self, CpuTime};

/// The requests whose latencies count.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Measured {
    /// All that end now.
    All,
    /// Those that are due from then on.
    DueFrom(Instant),
    #[default]
    None,
}

/// State of one run, on one thread.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) measured: Cell<Measured>,
    completed: Cell<u64>,
    errors: Cell<u64>,
    first_error: RefCell<Option<String>>,
    latencies: RefCell<Latencies>,
}

impl Shared {
    pub(super) fn recorded(&self) -> u64 {
        self.latencies.borrow().count()
    }

    pub(super) fn fail_many(&self, count: u64, text: impl FnOnce() -> String) {
        self.errors.set(self.errors.get() + count);
        self.first_error.borrow_mut().get_or_insert_with(text);
    }

    /// Returns the report over the window from `start` to `end`.
    pub(super) fn report(&self, start: &Border, end: &Border) -> Report {
        let cpu = end.cpu.since(start.cpu);
        let latencies = self.latencies.borrow();
        let micros = |q| latencies.quantile(q) * 1e3;
        Report {
            requests: end.completed - start.completed,
            errors: self.errors.get(),
            first_error: self.first_error.borrow().clone(),
            seconds: end.at.duration_since(start.at).as_secs_f64(),
            cpu_run_ns: nanos(cpu.run),
            cpu_wait_ns: nanos(cpu.wait),
            cpu_ticks_ns: nanos(cpu.ticks),
            p50_us: micros(0.5),
            p99_us: micros(0.99),
            p999_us: micros(0.999),
            max_us: latencies.max() * 1e3,
        }
    }
}

impl Observer for Shared {
    fn ended<E: fmt::Display>(
        &self,
        sample: Sample,
        result: std::result::Result<(), E>,
    ) -> ControlFlow<()> {
        if let Err(error) = result {
            self.fail_many(1, || error.to_string());
            return ControlFlow::Break(());
        }
        self.completed.set(self.completed.get() + 1);
        let is_measured = match self.measured.get() {
            Measured::All => true,
            Measured::DueFrom(from) => sample.due >= from,
            Measured::None => false,
        };
        if is_measured {
            self.latencies.borrow_mut().add(sample.latency());
        }
        ControlFlow::Continue(())
    }

    /// The report counts it as a missing response.
    fn missed(&self, _due: Instant) {}
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A border of the measured window.
#[derive(Debug)]
pub(super) struct Border {
    at: Instant,
    completed: u64,
    cpu: CpuTime,
}

impl Border {
    pub(super) fn now(shared: &Shared, watch: &[u32]) -> Result<Self> {
        let cpu = procfs::cpu(watch)?;
        Ok(Self {
            at: Instant::now(),
            completed: shared.completed.get(),
            cpu,
        })
    }
}
