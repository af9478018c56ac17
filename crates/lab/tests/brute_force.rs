//! The corrected model against Markov chains with every state written out, and routing by trying
//! every draw: slow, and without one formula of the model.

use maglor_lab::model::System;

/// Balancers in front of servers that share their time among requests. A server with more than
/// `most` requests of one balancer takes no more of it; the cases below make that rare.
struct Chain {
    balancers: usize,
    servers: usize,
    choices: u32,
    utilisation: f64,
    most: usize,
}

impl Chain {
    fn len(&self) -> usize {
        (self.most + 1).pow((self.balancers * self.servers) as u32)
    }

    /// How far a state's number changes with one request of a balancer at a server.
    fn unit(&self, balancer: usize, server: usize) -> usize {
        (self.most + 1).pow((balancer * self.servers + server) as u32)
    }

    fn count(&self, state: usize, balancer: usize, server: usize) -> usize {
        state / self.unit(balancer, server) % (self.most + 1)
    }

    /// The chance that each server gets the balancer's next request: all draws, one by one.
    fn routing(&self, state: usize, balancer: usize) -> Vec<f64> {
        let draws = self.servers.pow(self.choices);
        let mut chances = vec![0.0; self.servers];
        for draw in 0..draws {
            let drawn =
                (0..self.choices).map(|choice| draw / self.servers.pow(choice) % self.servers);
            let drawn: Vec<_> = drawn.collect();
            let least = |server: &&usize| self.count(state, balancer, **server);
            let fewest = least(&drawn.iter().min_by_key(least).expect("there is a draw"));
            let best: Vec<_> = drawn
                .iter()
                .filter(|server| least(server) == fewest)
                .collect();
            for server in &best {
                chances[**server] += 1.0 / (best.len() * draws) as f64;
            }
        }
        chances
    }

    /// The transitions of a state: the next states and their rates.
    fn moves(&self, state: usize) -> Vec<(usize, f64)> {
        let mut moves = Vec::new();
        let arrivals = self.utilisation * self.servers as f64 / self.balancers as f64;
        for balancer in 0..self.balancers {
            for (server, chance) in self.routing(state, balancer).into_iter().enumerate() {
                if chance > 0.0 && self.count(state, balancer, server) < self.most {
                    moves.push((state + self.unit(balancer, server), arrivals * chance));
                }
            }
        }
        for server in 0..self.servers {
            let own = |balancer| self.count(state, balancer, server);
            let total: usize = (0..self.balancers).map(own).sum();
            for balancer in (0..self.balancers).filter(|balancer| own(*balancer) > 0) {
                let rate = own(balancer) as f64 / total as f64;
                moves.push((state - self.unit(balancer, server), rate));
            }
        }
        moves
    }

    /// Mean latency in mean service times, by Little's law from the stationary distribution, which
    /// is found by following the chain until nothing changes.
    fn latency(&self) -> f64 {
        let moves: Vec<_> = (0..self.len()).map(|state| self.moves(state)).collect();
        let fastest = self.servers as f64 * (1.0 + self.utilisation);
        let mut now = vec![0.0; self.len()];
        now[0] = 1.0;
        loop {
            let mut next = now.clone();
            for (state, moves) in moves.iter().enumerate() {
                for (to, rate) in moves {
                    let flow = now[state] * rate / fastest;
                    next[*to] += flow;
                    next[state] -= flow;
                }
            }
            let change: f64 = now.iter().zip(&next).map(|(a, b)| (a - b).abs()).sum();
            now = next;
            if change < 1e-9 {
                break;
            }
        }
        let requests = |state| -> usize {
            let pairs = (0..self.balancers).flat_map(|b| (0..self.servers).map(move |s| (b, s)));
            pairs.map(|(b, s)| self.count(state, b, s)).sum()
        };
        let mean: f64 = (0..self.len())
            .map(|state| now[state] * requests(state) as f64)
            .sum();
        mean / (self.servers as f64 * self.utilisation)
    }
}

#[test]
fn small_systems_solved_state_by_state() {
    let mut worst: f64 = 0.0;
    for (balancers, servers, choices, utilisation, most) in [
        (1, 2, 2, 0.5, 16),
        (1, 2, 5, 0.75, 30),
        (1, 3, 2, 0.3, 10),
        (1, 3, 3, 0.6, 14),
        (2, 2, 2, 0.3, 7),
        (2, 2, 3, 0.5, 9),
        (3, 2, 2, 0.3, 4),
    ] {
        let chain = Chain {
            balancers,
            servers,
            choices,
            utilisation,
            most,
        };
        let exact = chain.latency();
        let system = System::new(balancers as u32, choices, utilisation).unwrap();
        let model = system.corrected_for(servers as u32).unwrap();
        let off = model / exact - 1.0;
        println!(
            "M = {balancers}, N = {servers}, d = {choices}, ρ = {utilisation}: \
             exact {exact:.4}, model {model:.4} ({:+.2} %), paper {:.4}",
            100.0 * off,
            system.paper().latency
        );
        worst = worst.max(off.abs());
    }
    // Two servers are as far from many as can be; the model is made for more.
    assert!(worst < 0.06, "{worst}");
}
