//! The cells of the comparison: protocol × body × connections × loop.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

/// The body sizes in bytes.
pub(crate) const BODIES: [usize; 2] = [64, 10_000];
/// The numbers of connections.
pub(crate) const CONNECTIONS: [usize; 3] = [1, 64, 1000];
/// The fixed rate of the open loop, requests per second.
pub(crate) const RATE: u32 = 1000;

/// The numbers of requests that wait for their answer. Each takes two descriptors of a proxy, of which a process often
/// has 20 000 at most.
pub(crate) const IN_FLIGHT: [usize; 4] = [10, 100, 1000, 9700];
/// How long each of them waits.
pub(crate) const WAIT: Duration = Duration::from_secs(1);
/// Ends the path of a request that waits.
pub(crate) const WAITING: &str = "/waiting";

/// The client's protocol; to the servers it is always HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Protocol {
    /// HTTP/1.1, keep-alive, no pipelining.
    H1,
    /// HTTP/2 without TLS, prior knowledge.
    H2c,
}

/// The scheduling of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loop {
    /// Each connection sends the next request as soon as it has its answer.
    Closed,
    /// Requests are due at a fixed rate, independent of the answers.
    Open,
    /// As many requests are due in a second as connections are given, and each is answered after [`WAIT`], so that as
    /// many are in flight at any time.
    Waiting,
}

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scenario {
    /// Downstream protocol.
    pub protocol: Protocol,
    /// Bytes of each answer's body.
    pub body: usize,
    /// Connections, each with at most one request under way.
    pub connections: usize,
    /// Closed or open loop.
    pub mode: Loop,
}

/// The cell of the bars about CPU time per request.
pub(crate) const HEADLINE: Scenario = Scenario {
    protocol: Protocol::H1,
    body: 64,
    connections: 64,
    mode: Loop::Closed,
};
/// The cell of the design's bars about latency.
pub(crate) const LATENCY: Scenario = Scenario {
    mode: Loop::Open,
    ..HEADLINE
};

impl Scenario {
    /// Returns all cells, the headline first.
    pub fn all() -> Vec<Self> {
        let mut cells = vec![HEADLINE, LATENCY];
        for protocol in [Protocol::H1, Protocol::H2c] {
            for mode in [Loop::Closed, Loop::Open] {
                for body in BODIES {
                    for connections in CONNECTIONS {
                        let cell = Self {
                            protocol,
                            body,
                            connections,
                            mode,
                        };
                        if !cells.contains(&cell) {
                            cells.push(cell);
                        }
                    }
                }
            }
        }
        cells
    }

    /// Returns the cells of requests in flight, the fewest first.
    pub fn waiting() -> Vec<Self> {
        let cell = |connections| Self {
            connections,
            mode: Loop::Waiting,
            ..HEADLINE
        };
        IN_FLIGHT.into_iter().map(cell).collect()
    }

    /// Returns the few cells of `--quick`.
    pub fn quick() -> Vec<Self> {
        vec![
            HEADLINE,
            LATENCY,
            Self {
                body: BODIES[1],
                ..HEADLINE
            },
            Self {
                protocol: Protocol::H2c,
                ..HEADLINE
            },
            Self {
                connections: 1000,
                ..HEADLINE
            },
        ]
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::H1 => "h1",
            Self::H2c => "h2c",
        })
    }
}

impl fmt::Display for Loop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Waiting => "waiting",
        })
    }
}

/// In the format of `--filter`: `h1-64B-64c-closed`.
impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}-{}B-{}c-{}",
            self.protocol, self.body, self.connections, self.mode
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_once() {
        let all = Scenario::all();
        assert_eq!(all.len(), 2 * 2 * 3 * 2);
        assert_eq!(all.iter().filter(|cell| **cell == HEADLINE).count(), 1);
        assert!(Scenario::quick().iter().all(|cell| all.contains(cell)));
        assert_eq!(HEADLINE.to_string(), "h1-64B-64c-closed");
    }
}
