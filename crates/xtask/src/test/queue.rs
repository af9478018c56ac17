//! Runs test programs, several at a time.
//!
//! Most tests wait for sockets and timers, so one program at a time leaves the processors idle. One worker takes the
//! fastest programs first, which reports most failures early; the others take the slowest first, so that none of them
//! is still running when everything else is done.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::shell::{Cargo, Ended};

/// The time limit of one program.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// A program to run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) command: Cargo,
}

/// A program that ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) name: String,
    pub(super) passed: bool,
    pub(super) took: Duration,
    /// The output, and why it ended if it did not by itself.
    pub(super) output: String,
}

/// Runs `jobs`, which are in the order of their durations, `at_once` at a time; `report` is called for each when it ends.
///
/// When `interrupted` becomes true, running programs are killed and not reported.
pub(super) fn run(
    jobs: Vec<Job>,
    at_once: usize,
    interrupted: &AtomicBool,
    mut report: impl FnMut(Finished),
) {
    let waiting = Mutex::new(VecDeque::from(jobs));
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for worker in 0..at_once.max(1) {
            let (waiting, sender) = (&waiting, sender.clone());
            scope.spawn(move || {
                while !interrupted.load(Ordering::Relaxed)
                    && let Some(job) = next(waiting, worker)
                    && let Some(finished) = finish(job, interrupted)
                {
                    // The receiver lives as long as the workers.
                    let _ = sender.send(finished);
                }
            });
        }
        drop(sender);
        for finished in receiver {
            report(finished);
        }
    });
}

fn next(waiting: &Mutex<VecDeque<Job>>, worker: usize) -> Option<Job> {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    if worker == 0 {
        waiting.pop_front()
    } else {
        waiting.pop_back()
    }
}

fn finish(job: Job, interrupted: &AtomicBool) -> Option<Finished> {
    let started = Instant::now();
    let ended = job.command.output_within(LIMIT, interrupted);
    let (passed, output) = match ended {
        Ok(Ended::Interrupted) => return None,
        Ok(Ended::Exited { status, output }) if status.success() => (true, output),
        Ok(Ended::Exited { status, output }) => (false, format!("{output}error: {status}\n")),
        Ok(Ended::Killed { output }) => {
            let limit = LIMIT.as_secs();
            (false, format!("{output}error: killed after {limit} s\n"))
        }
        Err(error) => (false, did_not_start(&error)),
    };
    Some(Finished {
        name: job.name,
        passed,
        took: started.elapsed(),
        output,
    })
}

fn did_not_start(error: &io::Error) -> String {
    format!("error: {error}\n")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn job(name: &str, script: &str) -> Job {
        Job {
            name: name.into(),
            command: Cargo::program("sh", "sh").args(["-c", script]),
        }
    }

    fn all(jobs: Vec<Job>, at_once: usize, interrupted: &AtomicBool) -> Vec<Finished> {
        let mut finished = Vec::new();
        run(jobs, at_once, interrupted, |one| finished.push(one));
        finished
    }

    #[test]
    fn each_program_is_reported_with_its_output() {
        let jobs = vec![
            job("good", "echo out; echo error >&2"),
            job("bad", "echo why; exit 3"),
            job("absent", "exec no-such-program"),
        ];
        let mut finished = all(jobs, 2, &AtomicBool::new(false));
        finished.sort_by(|a, b| a.name.cmp(&b.name));
        let found: Vec<_> = finished
            .iter()
            .map(|f| (f.name.as_str(), f.passed))
            .collect();
        assert_eq!(found, [("absent", false), ("bad", false), ("good", true)]);
        assert!(finished[1].output.starts_with("why\n"), "{:?}", finished[1]);
        assert_eq!(finished[2].output, "out\nerror\n");
    }

    #[test]
    fn one_worker_takes_the_fastest_first() {
        let jobs = ["a", "b", "c"].map(|name| job(name, "true"));
        let finished = all(jobs.into(), 1, &AtomicBool::new(false));
        let names: Vec<_> = finished.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn an_interruption_ends_what_runs_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("child");
        let interrupted = AtomicBool::new(false);
        let script = format!(
            "sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait",
            file.display()
        );
        let jobs = vec![job("held", &script), job("never", "true")];
        let finished = thread::scope(|scope| {
            let runs = scope.spawn(|| all(jobs, 1, &interrupted));
            while !file.exists() {
                thread::yield_now();
            }
            interrupted.store(true, Ordering::Relaxed);
            runs.join().unwrap()
        });
        assert!(finished.is_empty(), "{finished:?}");
        let child: i32 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        let child = rustix::process::Pid::from_raw(child).unwrap();
        // It is a child of the first process of the machine now, which may not have reaped it.
        while rustix::process::test_kill_process(child).is_ok() && !is_zombie(child) {
            thread::yield_now();
        }
    }

    fn is_zombie(process: rustix::process::Pid) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    }
}
