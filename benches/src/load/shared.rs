//! State shared by the connections of a run: counters, histogram, the measured window.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Report;
use crate::error::{Error, Result};
use crate::procfs::{self, CpuTime};

/// The longest latency; longer ones count as this.
const LONGEST: Duration = Duration::from_secs(3600);

/// State of one run, on one thread.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) completed: Cell<u64>,
    pub(super) recording: Cell<bool>,
    pub(super) stopped: Cell<bool>,
    errors: Cell<u64>,
    first_error: RefCell<Option<String>>,
    /// In nanoseconds.
    latencies: RefCell<Histogram<u64>>,
}

impl Shared {
    pub(super) fn new() -> Result<Rc<Self>> {
        let latencies = Histogram::new_with_bounds(1, nanos(LONGEST), 3);
        let latencies = latencies.map_err(Error::protocol)?;
        Ok(Rc::new(Self {
            completed: Cell::default(),
            recording: Cell::default(),
            stopped: Cell::default(),
            errors: Cell::default(),
            first_error: RefCell::default(),
            latencies: RefCell::new(latencies),
        }))
    }

    pub(super) fn complete(&self) {
        self.completed.set(self.completed.get() + 1);
    }

    pub(super) fn record(&self, latency: Duration) {
        self.latencies
            .borrow_mut()
            .saturating_record(nanos(latency));
    }

    pub(super) fn recorded(&self) -> u64 {
        self.latencies.borrow().len()
    }

    pub(super) fn fail(&self, error: &Error) {
        self.fail_many(1, || error.to_string());
    }

    pub(super) fn fail_many(&self, count: u64, text: impl FnOnce() -> String) {
        self.errors.set(self.errors.get() + count);
        self.first_error.borrow_mut().get_or_insert_with(text);
    }

    /// Returns the report over the window from `start` to `end`.
    pub(super) fn report(&self, start: &Border, end: &Border) -> Report {
        let cpu = end.cpu.since(start.cpu);
        let latencies = self.latencies.borrow();
        let micros = |q| latencies.value_at_quantile(q) as f64 / 1e3;
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
            max_us: latencies.max() as f64 / 1e3,
        }
    }
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
