//! The private words, and how a line is divided into words.

/// A word or phrase, and what to write instead.
const PRIVATE: &[(&str, &str)] = &[
    ("tries", "attempts; or the verb: attempts to"),
    ("tried", "attempted; tried again: retried"),
    ("a try", "an attempt"),
    ("station", "load reporting: what the thing holds or does"),
    ("stations", "load reporting: what the thing holds or does"),
    ("desk", "what the thing holds or does"),
    ("guest", "an in-flight request"),
    ("guests", "in-flight requests"),
    ("visits", "in-flight requests, or calls"),
    ("minded", "what the thing holds or does"),
    ("exchange", "queue protocol; for HTTP: request, round trip"),
    (
        "exchanges",
        "queue protocol; for HTTP: requests, round trips",
    ),
    ("exchanged", "sent, received"),
    ("standing", "state, verdict"),
    ("gives", "returns, reports, provides"),
    ("fn give", "publish, return, provide, set"),
    ("tell", "notify, report, distinguish"),
    ("tells", "notifies, reports, distinguishes"),
    ("told", "notified, reported, distinguished"),
    ("poke", "wake"),
    ("pokes", "wakes"),
    ("beat", "heartbeat, ticker"),
    ("owed", "pending"),
    ("seated", "admitted"),
    ("patiently", "with_deadline"),
    ("believe", "trust"),
    ("believes", "trusts"),
    ("believed", "trusted"),
    ("belief", "limit, estimate, trust"),
    ("fate", "outcome"),
    ("pulse", "heartbeat"),
    ("converse", "serve_channel; communicate"),
    ("conversation", "stream, connection, session"),
    (
        "mcg",
        "service_graph; the paper's term is written MCG in the docs only",
    ),
    (
        "stranger",
        "a peer without the protocol, an unauthenticated client",
    ),
    ("strangers", "remote peers, unauthenticated clients"),
    (
        "scene",
        "fixture, simulated cluster; outside of tests: input, state",
    ),
    ("scenes", "fixtures"),
    ("world", "fixture, simulated cluster"),
    ("twin", "fixture, simulated cluster"),
    ("nobody", "no client, no peer, none; a process is it"),
    ("somebody", "a client, another writer, a user"),
    ("whoever", "a client that, the process that"),
    ("is to be said", "is reported, is logged"),
    ("speaks of", "describes, names"),
    ("knows no more", "no longer has"),
    ("has no more", "no longer has"),
    ("is no more", "is removed"),
    ("goes by", "uses, depends on"),
    ("dear", "expensive"),
];

/// Terms of others in which a private word stands.
const TERMS: &[&str] = &[
    "state of the world",
    "hello world",
    "real world",
    "world writable",
    "key exchange",
    "compare exchange",
    "metadata exchange",
    "paper mcg",
    "paper s mcg",
    "balance src exchange",
    "balance tests exchange",
];

/// Names of interfaces that stay: policy parameters, metrics, fields of the access log, short names of kinds.
const NAMES: &[&str] = &[
    "\"exchange/1\"",
    "\"exchange/9\"",
    "\"strangers\"",
    "\"tries\"",
    "- mcg",
    "`tries`",
    "exchange_loads_told_total",
    "exchange_strangers_total",
    "\"exchange_",
    "maglor-exchange",
    "maglor/exchange",
    "maglor_exchange",
    "shortname = \"mcg\"",
    "tries=",
];

/// The words of a line in lower case; `camelCase` and `snake_case` are several.
pub(crate) fn of(line: &str) -> Vec<String> {
    let mut line = line.to_owned();
    for name in NAMES {
        line = line.replace(name, "");
    }
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    for c in line.chars() {
        let ends =
            !c.is_ascii_alphabetic() || (c.is_ascii_uppercase() && before.is_ascii_lowercase());
        if ends && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_ascii_alphabetic() {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// The private word or phrase that begins at a word, and what to write instead.
pub(crate) fn private_at(words: &[String], at: usize) -> Option<(&'static str, &'static str)> {
    let is_term = |term: &&str| {
        let before = term.split(' ').count() - 1;
        (0..=before).any(|back| at >= back && stands(words, at - back, term))
    };
    let found = PRIVATE
        .iter()
        .find(|(private, _)| stands(words, at, private))?;
    (!TERMS.iter().any(is_term)).then_some(*found)
}

fn stands(words: &[String], at: usize, phrase: &str) -> bool {
    let mut rest = words.iter().skip(at);
    phrase
        .split(' ')
        .all(|word| rest.next().is_some_and(|next| next == word))
}
