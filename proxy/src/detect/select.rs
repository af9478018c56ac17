//! Which filter chain takes a connection.
//!
//! A chain takes a connection when all that its match names holds. Of the chains that do, the most
//! specific wins: by server name (exact, then the longest suffix wildcard, then any), then by
//! application protocol (the client's first choice, then its next ones, then any), then by the
//! longest source prefix; at last, the first listed.

use std::cmp::Reverse;
use std::net::IpAddr;

use hashbrown::HashMap;
use ipnet::IpNet;
use maglor_config::listener::FilterChainMatch;

/// Chooses among a listener's filter chains. Built when the configuration is.
#[derive(Clone, Debug)]
pub struct ChainSelector {
    exact: HashMap<String, Vec<Candidate>>,
    /// `*.example.com` under `example.com`.
    suffix: HashMap<String, Vec<Candidate>>,
    any: Vec<Candidate>,
    needs_client_hello: bool,
}

/// A chain under one of its server names.
#[derive(Clone, Debug)]
struct Candidate {
    chain: usize,
    /// Empty = any.
    alpn: Vec<Box<[u8]>>,
    /// Empty = any.
    source: Vec<IpNet>,
}

impl ChainSelector {
    /// Compiles the matches of a listener's chains; indices in the answers are theirs.
    pub fn new<'a>(matches: impl IntoIterator<Item = &'a FilterChainMatch>) -> Self {
        let mut this = Self {
            exact: HashMap::new(),
            suffix: HashMap::new(),
            any: Vec::new(),
            needs_client_hello: false,
        };
        for (chain, matches) in matches.into_iter().enumerate() {
            this.insert(chain, matches);
        }
        this
    }

    fn insert(&mut self, chain: usize, matches: &FilterChainMatch) {
        let protocols = &matches.application_protocols;
        self.needs_client_hello |= !matches.server_names.is_empty() || !protocols.is_empty();
        let candidate = Candidate {
            chain,
            alpn: protocols
                .iter()
                .map(|name| name.as_bytes().into())
                .collect(),
            source: matches.source.clone(),
        };
        for name in &matches.server_names {
            let (map, key) = match name.strip_prefix("*.") {
                Some(suffix) => (&mut self.suffix, suffix),
                None => (&mut self.exact, name.as_str()),
            };
            map.entry_ref(key).or_default().push(candidate.clone());
        }
        if matches.server_names.is_empty() {
            self.any.push(candidate);
        }
    }

    /// Whether the choice depends on the ClientHello; otherwise it need not be waited for.
    pub fn needs_client_hello(&self) -> bool {
        self.needs_client_hello
    }

    /// The chain for a connection; `None` = no chain takes it.
    ///
    /// `server_name` is lower case, `alpn` in the client's order; both are empty for plain text.
    pub fn select(
        &self,
        server_name: Option<&str>,
        alpn: &[Vec<u8>],
        source: IpAddr,
    ) -> Option<usize> {
        let source = source.to_canonical();
        let best = |candidates: &Vec<Candidate>| {
            let ranked = candidates
                .iter()
                .filter_map(|c| Some((c.rank(alpn, source)?, c.chain)));
            ranked.min().map(|(_, chain)| chain)
        };
        let name = server_name.map(|name| name.strip_suffix('.').unwrap_or(name));
        let exact = || self.exact.get(name?).and_then(best);
        let suffix = || suffixes(name?).find_map(|suffix| self.suffix.get(suffix).and_then(best));
        exact().or_else(suffix).or_else(|| best(&self.any))
    }
}

/// `b.c` and `c` for `a.b.c`.
fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    let dots = memchr::memchr_iter(b'.', name.as_bytes());
    dots.filter(|dot| *dot > 0).map(|dot| &name[dot + 1..])
}

/// Smaller is more specific.
type Rank = (usize, Reverse<u8>);

impl Candidate {
    /// How specific this is for a connection; `None` when it does not take it.
    fn rank(&self, alpn: &[Vec<u8>], source: IpAddr) -> Option<Rank> {
        let protocol = if self.alpn.is_empty() {
            usize::MAX
        } else {
            alpn.iter()
                .position(|offered| self.alpn.iter().any(|name| **name == **offered))?
        };
        // Any address is less specific than a prefix of length 0: both are told apart by 1.
        let prefix = if self.source.is_empty() {
            0
        } else {
            let containing = self.source.iter().filter(|net| net.contains(&source));
            containing.map(|net| net.prefix_len() + 1).max()?
        };
        Some((protocol, Reverse(prefix)))
    }
}
