//! Compares the loads of servers with unequal weights so that shares follow the weights.
//!
//! A server of weight w is treated as w/u *places* of equal size; n requests are n·u/w in each place. A comparison of
//! n/w itself would lead to wrong shares, because n is a whole number: of two servers weighted 99:1, the light one is
//! less loaded whenever the other has any request; with (n + 1)/w the light one gets none before the other has 99
//! requests. Places are drawn by weight, and each holds a whole number of requests. The unit u is the least weight of
//! the compared servers, so that servers of equal weight are compared by their numbers of requests, as without weights.
//!
//! Shares are exact while there are fewer requests than places: all places are alike, and each request takes a random
//! free one, so that each place gets the same part of the requests (for [`Contest`], and in service times of any
//! distribution that is the same at all servers).

use crate::Rng;

/// A candidate, with its number of requests in flight and its weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<T> {
    pub(crate) of: T,
    pub(crate) load: u32,
    pub(crate) weight: f64,
}

/// Returns the least loaded of candidates that were drawn by weight; the first of equals.
///
/// A candidate stands for one place of its server. A fractional number of requests per place is rounded up with the
/// probability of its fraction, by a separate draw: a server that is drawn twice stands for two of its places.
pub(crate) fn least<T: Copy>(
    candidates: &[Candidate<T>],
    unit: f64,
    tosses: &mut Rng,
) -> Option<T> {
    let mut best: Option<(T, f64)> = None;
    for candidate in candidates {
        let rounded = rounded(candidate.load, candidate.weight / unit, tosses.unit());
        if best.is_none_or(|(_, least)| rounded < least) {
            best = Some((candidate.of, rounded));
        }
    }
    best.map(|(of, _)| of)
}

/// Returns the least weight of the candidates.
pub(crate) fn unit_of<T>(candidates: &[Candidate<T>]) -> f64 {
    let weights = candidates.iter().map(|candidate| candidate.weight);
    weights.fold(f64::INFINITY, f64::min)
}

/// Returns the number of requests per place as a whole number, rounded at random by `toss`.
#[inline]
pub(crate) fn rounded(load: u32, places: f64, toss: f64) -> f64 {
    (f64::from(load) / places + toss).floor()
}

/// Returns the greatest load that is [`rounded`] to at most `most`.
pub(crate) fn limit(most: f64, places: f64, toss: f64) -> u32 {
    let mut limit = ((most + 1.0 - toss) * places).ceil().max(1.0) as u32 - 1;
    // Sums of fractions may be off by one.
    while limit > 0 && rounded(limit, places, toss) > most {
        limit -= 1;
    }
    limit
}

/// Finds the least loaded of all servers, in one pass.
///
/// Servers must be offered in descending order of their weights. Servers of equal weight form a class, of which the
/// least loaded one is taken. A class and all heavier servers together are compared in places of the class's weight:
/// those with fewer requests per place win, and with equal numbers the probability is proportional to the free places
/// up to the next number. With equal weights there is one class, and no further comparison.
#[derive(Debug)]
pub(crate) struct Contest<T> {
    /// The result of all classes before the last one.
    ahead: Option<Pool<T>>,
    class: Option<Class<T>>,
}

#[derive(Debug)]
struct Pool<T> {
    winner: T,
    /// The winner's load per weight after this request.
    reach: f64,
    weight: f64,
    load: f64,
}

#[derive(Debug)]
struct Class<T> {
    weight: f64,
    /// The number of servers in the class, and the number of those with the least load.
    count: u32,
    at_least: u32,
    least: u32,
    /// A server with the least load, and the number of servers from which it was drawn.
    best: T,
    ties: u32,
}

/// The result of comparing a server with another one of the same weight and load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tie {
    Better,
    Equal,
    Worse,
}

impl<T: Copy> Contest<T> {
    pub(crate) fn new() -> Self {
        Self {
            ahead: None,
            class: None,
        }
    }

    /// Adds a server. `tie` compares it with the best server of its class.
    #[inline]
    pub(crate) fn offer(
        &mut self,
        Candidate { of, load, weight }: Candidate<T>,
        rng: &mut Rng,
        tie: impl FnOnce(T) -> Tie,
    ) {
        let class = match &mut self.class {
            Some(class) if class.weight == weight => class,
            _ => {
                self.close(rng);
                self.class = Some(Class {
                    weight,
                    count: 1,
                    at_least: 1,
                    least: load,
                    best: of,
                    ties: 1,
                });
                return;
            }
        };
        class.count += 1;
        if load < class.least {
            (class.best, class.least) = (of, load);
            (class.at_least, class.ties) = (1, 1);
        } else if load == class.least {
            class.at_least += 1;
            match tie(class.best) {
                Tie::Better => (class.best, class.ties) = (of, 1),
                Tie::Equal => {
                    class.ties += 1;
                    if rng.below(class.ties) == 0 {
                        class.best = of;
                    }
                }
                Tie::Worse => {}
            }
        }
    }

    /// Returns the winner; `None` if no server was offered.
    pub(crate) fn winner(mut self, rng: &mut Rng) -> Option<T> {
        self.close(rng);
        self.ahead.map(|pool| pool.winner)
    }

    fn close(&mut self, rng: &mut Rng) {
        let Some(class) = self.class.take() else {
            return;
        };
        let weight = class.weight * f64::from(class.count);
        let reach = f64::from(class.least + 1) / class.weight;
        // Load above the next level does not count, here and below: a stalled server must not make
        // the others of its side look busy.
        let load = f64::from(class.count) * f64::from(class.least + 1) - f64::from(class.at_least);
        let Some(pool) = &mut self.ahead else {
            self.ahead = Some(Pool {
                winner: class.best,
                reach,
                weight,
                load,
            });
            return;
        };
        if class.wins(pool, rng) {
            pool.load = pool.load.min(pool.weight * reach) + load;
            (pool.winner, pool.reach) = (class.best, reach);
        } else {
            pool.load += load.min(weight * pool.reach);
        }
        pool.weight += weight;
    }
}

impl<T> Class<T> {
    fn wins(&self, pool: &Pool<T>, rng: &mut Rng) -> bool {
        let places = pool.weight / self.weight;
        let level = (pool.load / places).floor();
        let least = f64::from(self.least);
        if least != level {
            return least < level;
        }
        let free = places * (level + 1.0) - pool.load;
        let own = f64::from(self.at_least);
        rng.unit() * (free + own) < own
    }
}

#[cfg(test)]
mod tests;
