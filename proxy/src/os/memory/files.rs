//! Drops resident pages of the program's own files.
//!
//! A small sidecar's resident memory is mostly code. Most of this code has run once, for the start, a connection's
//! handshake, or a resource of the control plane; the code that handles requests is contiguous (`hot-functions.txt`).
//! When more pages are resident than requests have needed so far, all pages are dropped. Pages that are still needed
//! return from the page cache, with a page fault for each [`AROUND`] bytes, about a hundred in total.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Time after a drop in which the pages that requests need become resident again.
const REFILL: Duration = Duration::from_secs(1);
/// Minimum number of excess bytes for a drop.
const WORTH: u64 = 512 << 10;
/// Time after a drop during which returning pages are attributed to periodic work, such as sweeps of connections and
/// keep-alives. In this case twice as many excess bytes are tolerated.
const AGAIN: Duration = Duration::from_secs(30);
/// Maximum number of tolerated excess bytes; a handshake needs more.
const MOST_LET_BE: u64 = 2 << 20;
/// Pause after which pages are dropped in order to measure again what requests need. It doubles each time.
const SOON: Duration = Duration::from_secs(1);
/// Maximum of this pause.
const RARELY: Duration = Duration::from_hours(1);

/// Number of bytes read at a page fault. Linux reads four times as many by default, most of which a handshake does
/// not need.
const AROUND: usize = 16 << 10;

/// Determines from the number of resident bytes when pages of files are dropped.
#[derive(Debug)]
pub(super) struct Watch {
    /// Number of bytes that requests need, as far as known; 0 at the start.
    needed: u64,
    /// When `needed` is measured again; `None` if it was measured since the last drop.
    refilled: Option<Instant>,
    /// Number of excess bytes beyond `needed` that are tolerated.
    let_be: u64,
    /// Time until which returning pages are attributed to periodic work.
    again: Instant,
    /// When pages are dropped although there are no more than needed, because `needed` may have been measured during
    /// other activity.
    next: Instant,
    /// Pause between the `next` time and the one after it.
    pause: Duration,
}

impl Watch {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            needed: 0,
            refilled: None,
            let_be: WORTH,
            again: now,
            next: now,
            pause: SOON,
        }
    }

    /// Called after a burst: pages that only the burst needed can be dropped.
    pub(super) fn settle(&mut self, now: Instant) {
        self.next = now;
        self.pause = SOON;
        self.let_be = WORTH;
    }

    /// Returns whether to drop all pages, given the number of resident bytes.
    pub(super) fn look(&mut self, resident: u64, now: Instant) -> bool {
        if let Some(refilled) = self.refilled {
            if now >= refilled {
                self.needed = resident;
                self.refilled = None;
            }
            return false;
        }
        let more = resident.saturating_sub(self.needed);
        if more > self.let_be.max(self.needed / 4) {
            self.pause = SOON;
            if now >= self.again {
                self.let_be = WORTH;
            } else if more <= MOST_LET_BE {
                self.let_be = (self.let_be * 2).min(MOST_LET_BE);
            }
        } else if now < self.next {
            return false;
        }
        let refilled = now + REFILL;
        self.refilled = Some(refilled);
        self.again = refilled + AGAIN;
        self.next = refilled + self.pause;
        self.pause = (self.pause * 2).min(RARELY);
        true
    }
}

/// Ranges of the address space that contain clean pages of files.
#[derive(Debug)]
pub(super) struct Mapped(Vec<(usize, usize)>);

impl Mapped {
    /// Returns those of the program, which are found by the first call: later there would be many more of them, in pieces.
    pub(super) fn get() -> &'static Self {
        static FOUND: OnceLock<Mapped> = OnceLock::new();
        FOUND.get_or_init(Self::find)
    }

    /// Finds the current ranges, and limits the bytes read at page faults in them to [`AROUND`].
    fn find() -> Self {
        let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let ranges = clean_ranges(&mappings);
        for (start, end) in &ranges {
            divide(*start, *end);
        }
        Self(ranges)
    }

    /// Drops the pages that only the start (or a reload, or a burst) needed: parsers, TLS set-up, argument handling.
    /// The pages are clean and are read from the file again when needed. Until then they do not count as memory of
    /// the process; in a small sidecar they are most of it.
    pub(super) fn forget(&self) {
        for (start, end) in &self.0 {
            advise(*start, *end, libc::MADV_DONTNEED);
        }
    }
}

/// Divides a mapping into pieces, because at a page fault the system reads surrounding pages up to the end of the
/// mapping. Every other piece gets an advice about core dumps, which has no effect on pages of files. The pieces do
/// not depend on where the mapping begins, so dividing a piece again changes nothing.
fn divide(start: usize, end: usize) {
    let first = start.next_multiple_of(AROUND * 2);
    for piece in (first..end).step_by(AROUND * 2) {
        advise(piece, end.min(piece + AROUND), libc::MADV_DONTDUMP);
    }
}

/// Returns the mappings of the program's files (itself and its libraries) that equal the files: code and constants, but
/// not what the loader has written before it made it read-only. `mappings` has the form of `/proc/self/smaps`.
fn clean_ranges(mappings: &str) -> Vec<(usize, usize)> {
    // An emulator may report that no page of any mapping was written, but each process has written its stack.
    if !mappings.lines().any(shows_changes) {
        return Vec::new();
    }
    let mut all: Vec<Mapping<'_>> = Vec::new();
    for line in mappings.lines() {
        if let Some(mapping) = Mapping::parse(line) {
            all.push(mapping);
        } else if let Some(last) = all.last_mut() {
            last.is_clean &= !shows_changes(line);
        }
    }
    let programs: Vec<&str> = all
        .iter()
        .filter(|mapping| mapping.permissions == "r-xp")
        .map(|mapping| mapping.path)
        .collect();
    all.iter()
        .filter(|mapping| mapping.is_clean && programs.contains(&mapping.path))
        .map(|mapping| mapping.range)
        .collect()
}

/// A mapping of a file.
struct Mapping<'a> {
    range: (usize, usize),
    permissions: &'a str,
    path: &'a str,
    /// Whether it cannot be written, and no page of it was.
    is_clean: bool,
}

impl<'a> Mapping<'a> {
    /// Parses the first line of a mapping; `None` for other lines. A mapping without a file has an empty path.
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (range, permissions) = (words.next()?, words.next()?);
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let path = words.nth(3).unwrap_or_default();
        Some(Self {
            range: (number(start)?, number(end)?),
            permissions,
            path,
            is_clean: matches!(permissions, "r-xp" | "r--p") && path.starts_with('/'),
        })
    }
}

/// Returns whether a line about a mapping means that pages of it were written, and so differ from the file.
fn shows_changes(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    matches!(words.next(), Some("Anonymous:" | "Swap:")) && words.next() != Some("0")
}

#[allow(unsafe_code)]
fn advise(start: usize, end: usize, advice: libc::c_int) {
    let at = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range is of a private, read-only mapping of a file (see `clean_ranges`). Its pages equal the
    // file's, so that dropping them changes no byte that can be read.
    unsafe {
        libc::madvise(at, end - start, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// Returns the seconds at which pages are dropped, for a program whose resident bytes are `of` the second and of
    /// the second of the last drop.
    fn given_back(seconds: u64, mut of: impl FnMut(u64, Option<u64>) -> u64) -> Vec<u64> {
        let start = Instant::now();
        let (mut watch, mut when) = (Watch::new(start), vec![]);
        for second in 0..seconds {
            let resident = of(second, when.last().copied());
            if watch.look(resident, start + Duration::from_secs(second)) {
                when.push(second);
            }
        }
        when
    }

    #[test]
    fn what_was_needed_once_is_given_back_soon() {
        // The start takes 3 s and 6 MB, a connection at 600 s 5 MB, requests need 2 MB.
        let given = given_back(3600, |second, last| match (second, last) {
            (..3, _) | (_, None) => 6 * MB,
            (600.., Some(..600)) => 5 * MB,
            _ => 2 * MB,
        });
        let between = |from, to| {
            given
                .iter()
                .filter(|second| (from..to).contains(*second))
                .count()
        };
        assert!(between(3, 10) > 0 && between(600, 602) == 1, "{given:?}");
        assert!(given.len() < 30, "{given:?}");
    }

    #[test]
    fn what_is_needed_all_the_time_is_let_go_less_and_less_often() {
        let given = given_back(24 * 3600, |_, _| 6 * MB);
        assert!(given.len() < 14 + 24, "{given:?}");
    }

    #[test]
    fn after_a_burst_pages_are_let_go_twice() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        let look = |watch: &mut Watch, second| watch.look(MB, start + Duration::from_secs(second));
        assert_eq!(
            (0..100).filter(|second| look(&mut watch, *second)).count(),
            7
        );
        watch.settle(start + Duration::from_secs(100));
        let then: Vec<u64> = (100..105)
            .filter(|second| look(&mut watch, *second))
            .collect();
        assert_eq!(then, [100, 102], "the second one when its end is over, too");
    }

    #[test]
    fn what_is_needed_now_and_then_is_not_let_go_each_time() {
        // Requests need 4 MB, periodic work every 3, 5 and 10 s another 600 kB each.
        let given = given_back(3600, |second, last| {
            let since = |period: &u64| last.is_none_or(|last| second / period > last / period);
            4 * MB + [3, 5, 10].iter().filter(|period| since(period)).count() as u64 * 600_000
        });
        assert!(given.len() <= 24, "{given:?}");
        assert!(given.iter().any(|second| *second > 1000), "{given:?}");
    }

    #[test]
    fn what_comes_back_is_let_go_again_but_not_all_the_time() {
        let given = given_back(600, |_, last| last.map_or(6, |last| 2 + last % 3) * MB);
        assert!(
            given.windows(2).all(|two| two[1] - two[0] >= 2),
            "{given:?}"
        );
    }

    #[test]
    fn code_and_constants_can_be_forgotten() {
        let mapping = |head: &str, anonymous: u64, swapped: u64| {
            format!("{head}\nRss: 8 kB\nAnonymous: {anonymous} kB\nSwap: {swapped} kB\n")
        };
        let clean = |heads: &[(&str, u64, u64)]| {
            let stack = ("7000-8000 rw-p 00000000 00:00 0 [stack]", 4, 0);
            let text = heads
                .iter()
                .chain([&stack])
                .map(|(head, anonymous, swapped)| mapping(head, *anonymous, *swapped));
            clean_ranges(&text.collect::<String>())
        };
        let code = ("1000-2000 r-xp 00001000 fe:00 12 /usr/bin/true", 0, 0);
        let constants = "2000-3000 r--p 00002000 fe:00 12 /usr/bin/true";
        assert_eq!(
            clean(&[code, (constants, 0, 0)]),
            [(0x1000, 0x2000), (0x2000, 0x3000)]
        );
        for other in [
            (constants, 4, 0),
            (constants, 0, 4),
            ("2000-3000 rw-p 00002000 fe:00 12 /usr/bin/true", 0, 0),
            ("2000-3000 r--p 00000000 fe:00 13 /etc/services", 0, 0),
            ("2000-3000 r-xp 00000000 00:00 0 [vdso]", 0, 0),
            ("2000-3000 r--p 00000000 00:00 0", 0, 0),
        ] {
            assert_eq!(clean(&[code, other]), [(0x1000, 0x2000)], "{other:?}");
        }
        assert_eq!(clean(&[]), []);
        assert_eq!(clean_ranges(&mapping(code.0, 0, 0)), [], "emulated");
    }

    #[test]
    fn mappings_are_divided() {
        Mapped::find();
        let mapped = Mapped::find();
        let now = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let pieces = clean_ranges(&now);
        for (start, end) in mapped.0 {
            let here = pieces
                .iter()
                .filter(|piece| start <= piece.0 && piece.1 <= end);
            assert!(here.count() >= ((end - start) / AROUND).saturating_sub(1));
        }
    }

    #[test]
    fn code_comes_back_when_it_is_called() {
        let mapped = Mapped::find();
        mapped.forget();
        assert!(!mapped.0.is_empty());
        assert_eq!("12".parse::<u32>(), Ok(12));
    }
}
