//! Parses parts of scenarios in the notation of the command line: `5:0.5:1000` for an antagonist,
//! `500:leave:3` for a disturbance. Parts with a file of their own have their notation there.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::guards::Faults;
use super::scenario::{Antagonist, Change, Disturbance};
use super::server::Discipline;

impl FromStr for Discipline {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fifo" => Ok(Self::Fifo),
            "parallel" => Ok(Self::Parallel),
            "ps" => Ok(Self::ProcessorSharing),
            _ => Err(format!(
                "`{text}` is no discipline; write fifo, ps or parallel"
            )),
        }
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "fifo",
            Self::Parallel => "parallel",
            Self::ProcessorSharing => "ps",
        })
    }
}

impl FromStr for Antagonist {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = match &*parts {
            [one_in, factor, lasts] => (one_in.parse().ok())
                .zip(factor.parse().ok())
                .zip(millis(lasts)),
            _ => None,
        };
        parsed
            .map(|((one_in, factor), lasts)| Self {
                one_in,
                factor,
                lasts,
            })
            .ok_or_else(|| format!("`{text}` is no antagonist; write ONE_IN:FACTOR:MS"))
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = match &*parts {
            [servers, share, work] => (servers.parse().ok())
                .zip(share.parse().ok())
                .zip(work.parse().ok()),
            _ => None,
        };
        parsed
            .map(|((servers, share), work)| Self {
                servers,
                share,
                work,
                status: Self::STATUS,
            })
            .ok_or_else(|| format!("`{text}` are no faults; write SERVERS:SHARE:WORK"))
    }
}

impl FromStr for Disturbance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = match &*parts {
            [at, change, number] => millis(at).zip(change_of(change, number)),
            _ => None,
        };
        parsed
            .map(|(at, change)| Self { at, change })
            .ok_or_else(|| {
                format!(
                    "`{text}` is not a change; write MS:leave:SERVER, MS:return:SERVER, \
                     MS:silent:SERVER, MS:reporting:SERVER, MS:ledger-dies:GROUP, \
                     MS:ledger-restarts:GROUP, MS:ledger-stalls:GROUP or MS:ledger-resumes:GROUP"
                )
            })
    }
}

fn change_of(word: &str, number: &str) -> Option<Change> {
    let number = number.parse().ok()?;
    match word {
        "leave" => Some(Change::Leave(number)),
        "ledger-dies" => Some(Change::LedgerDies(number)),
        "ledger-restarts" => Some(Change::LedgerRestarts(number)),
        "ledger-resumes" => Some(Change::LedgerResumes(number)),
        "ledger-stalls" => Some(Change::LedgerStalls(number)),
        "reporting" => Some(Change::Reporting(number)),
        "return" => Some(Change::Return(number)),
        "silent" => Some(Change::Silent(number)),
        _ => None,
    }
}

/// Parses milliseconds, optionally with a fraction.
fn millis(text: &str) -> Option<Duration> {
    let millis: f64 = text.parse().ok()?;
    Duration::try_from_secs_f64(millis / 1000.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_meant() {
        for discipline in [
            Discipline::Fifo,
            Discipline::Parallel,
            Discipline::ProcessorSharing,
        ] {
            assert_eq!(discipline.to_string().parse(), Ok(discipline));
        }
        let antagonist: Antagonist = "5:0.5:1500".parse().unwrap();
        assert_eq!((antagonist.one_in, antagonist.factor), (5, 0.5));
        assert_eq!(antagonist.lasts, Duration::from_millis(1500));
        let disturbance: Disturbance = "0.5:ledger-dies:2".parse().unwrap();
        assert_eq!(disturbance.at, Duration::from_micros(500));
        assert_eq!(disturbance.change, Change::LedgerDies(2));
        let faults: Faults = "4:0.3:1".parse().unwrap();
        assert_eq!((faults.servers, faults.share, faults.work), (4, 0.3, 1.0));
        assert!("4:0.3".parse::<Faults>().is_err());
        for text in ["", "5:0.5", "x:1:1", "1:1:-1"] {
            assert!(text.parse::<Antagonist>().is_err(), "{text}");
        }
        for text in ["", "1:leave", "1:jump:2", "x:leave:2", "1:leave:x"] {
            assert!(text.parse::<Disturbance>().is_err(), "{text}");
        }
        assert!("lifo".parse::<Discipline>().is_err());
    }
}
