//! The standard error of a child process.

use std::io::{self, BufRead, BufReader};
use std::process::ChildStderr;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Standard error of a process, read by a thread.
#[derive(Debug)]
pub(super) struct Log {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Log {
    pub(super) fn collect(stderr: ChildStderr) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let reader = {
            let text = Arc::clone(&text);
            thread::spawn(move || Self::read(stderr, &text))
        };
        Self {
            text,
            reader: Some(reader),
        }
    }

    fn read(stderr: impl io::Read, text: &Mutex<String>) {
        let mut stderr = BufReader::new(stderr);
        let mut line = Vec::new();
        while stderr
            .read_until(b'\n', &mut line)
            .is_ok_and(|length| length > 0)
        {
            text.lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }

    pub(super) fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// Waits for the end of the process's output; not long, because a surviving child of the
    /// process may hold it open.
    pub(super) fn finish(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        while let Some(reader) = &self.reader
            && !reader.is_finished()
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(1));
        }
        self.reader = None;
    }
}
