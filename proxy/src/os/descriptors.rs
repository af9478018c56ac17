//! File descriptors: raises the limit of the process, and keeps a reserve that clients cannot use up.
//!
//! The proxy needs descriptors for connections to endpoints, its admin port, files and name resolution while clients
//! hold theirs. The system assigns the lowest free number to a new connection, so this number shows how many
//! descriptors are in use, without counting every file and socket.

use std::os::fd::{AsRawFd, RawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fraction of the limit that is reserved, as its divisor.
const PART: u64 = 4;
/// Minimum number of reserved descriptors.
const FEWEST: u64 = 16;
/// Maximum number of reserved descriptors.
const MOST: u64 = 4096;

/// Thresholds of descriptor numbers above which descriptors are scarce or exhausted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Descriptors {
    short: RawFd,
    out: RawFd,
}

/// Availability of descriptors for an accepted connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Room {
    Enough,
    /// There is room for this connection, but this many idle connections should be closed.
    Short(usize),
    /// There is no room, because the rest is reserved for endpoints and the admin port. This many idle connections
    /// should be closed.
    None(usize),
}

impl Descriptors {
    /// Computes the thresholds from the soft limit of the process (`RLIMIT_NOFILE`).
    pub(crate) fn of_process() -> Self {
        Self::of(getrlimit(Resource::Nofile).current)
    }

    /// Computes the thresholds for a limit; `None` means no limit.
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

    /// Returns the room that is left after a connection was accepted.
    pub(crate) fn room(self, accepted: &impl AsRawFd) -> Room {
        let number = accepted.as_raw_fd();
        // All lower numbers are in use, so the excess is at least this large. Connections that were accepted before
        // older ones ended may also use higher numbers. They become the oldest in turn, so there are never more of
        // them than the square root of twice the clients' share.
        let excess = || usize::try_from(number - self.short).unwrap_or(0) + 1;
        match number {
            number if number >= self.out => Room::None(excess()),
            number if number >= self.short => Room::Short(excess()),
            _ => Room::Enough,
        }
    }
}

/// Raises the soft limit of open descriptors to the hard limit: the low default of 1024 is for programs that use
/// `select(2)`. If this fails, the limit stays unchanged and a log line reports it.
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
