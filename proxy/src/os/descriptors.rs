//! File descriptors: as many as the system allows, and some that clients cannot use up.
//!
//! The proxy needs descriptors for connections to endpoints, its admin port, files and name resolution while clients hold
//! theirs. The system gives a new connection the lowest free number, so the number says how many are in use, without a
//! count of every file and socket.

use std::os::fd::{AsRawFd, RawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One of so many descriptors is kept back,
const PART: u64 = 4;
/// but not fewer than these,
const FEWEST: u64 = 16;
/// and not more.
const MOST: u64 = 4096;

/// From which number on descriptors are short.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Descriptors {
    short: RawFd,
    out: RawFd,
}

/// How much room there is for one more client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Room {
    Enough,
    /// So many connections that have asked for nothing are to go.
    Short(usize),
    /// So many are to go, and what is left is needed for endpoints and the admin port.
    None(usize),
}

impl Descriptors {
    /// By the soft limit of the process (`RLIMIT_NOFILE`).
    pub(crate) fn of_process() -> Self {
        Self::of(getrlimit(Resource::Nofile).current)
    }

    /// `None` = there is no limit.
    fn of(limit: Option<u64>) -> Self {
        let kept = |limit: u64| (limit / PART).clamp(FEWEST, MOST);
        let number = |number: u64| RawFd::try_from(number).unwrap_or(RawFd::MAX);
        match limit {
            None => Self {
                short: RawFd::MAX,
                out: RawFd::MAX,
            },
            Some(limit) => Self {
                short: number(limit.saturating_sub(kept(limit))),
                out: number(limit.saturating_sub(kept(limit) / 2)),
            },
        }
    }

    /// After a connection has been accepted.
    pub(crate) fn room(self, accepted: &impl AsRawFd) -> Room {
        let number = accepted.as_raw_fd();
        // All lower numbers are in use, so that at least so many are too many. Higher ones may be, too, of connections that
        // were let in before while older ones ended; they are the oldest in turn, so that there are never more of them
        // than the root of twice the clients' part.
        let excess = || usize::try_from(number - self.short).unwrap_or(0) + 1;
        match number {
            number if number >= self.out => Room::None(excess()),
            number if number >= self.short => Room::Short(excess()),
            _ => Room::Enough,
        }
    }
}

/// Raises the soft limit of open descriptors to the hard one: the low default of 1024 is for programs that use
/// `select(2)`. Where the system refuses, the limit stays, and the log says so.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::debug!(from = current, to = maximum, "limit of open files raised"),
        Err(error) => {
            tracing::warn!(limit = current, %error, "the limit of open files cannot be raised");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_kept_within_bounds() {
        let of = |limit| {
            let Descriptors { short, out } = Descriptors::of(limit);
            (short, out)
        };
        assert_eq!(of(Some(256)), (192, 224));
        assert_eq!(of(Some(32)), (16, 24));
        assert_eq!(of(Some(1 << 20)), ((1 << 20) - 4096, (1 << 20) - 2048));
        assert_eq!(of(Some(8)), (0, 0));
        assert_eq!(of(None), (RawFd::MAX, RawFd::MAX));
    }

    #[test]
    fn the_number_says_how_many_are_to_go() {
        struct Number(RawFd);
        impl AsRawFd for Number {
            fn as_raw_fd(&self) -> RawFd {
                self.0
            }
        }
        let room = |number| Descriptors::of(Some(256)).room(&Number(number));
        assert_eq!(room(191), Room::Enough);
        assert_eq!((room(192), room(200)), (Room::Short(1), Room::Short(9)));
        assert_eq!((room(223), room(224)), (Room::Short(32), Room::None(33)));
    }
}
