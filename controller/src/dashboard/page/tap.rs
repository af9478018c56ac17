//! Live requests of proxies whose admin ports can be reached, as `maglor tap` shows them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinSet;

use crate::dashboard::page::admin_port::{self, Proxies};
use crate::dashboard::page::hub::Stream;
use crate::dashboard::page::query::{Query, QueryError};

/// Parameters of a tap.
pub(crate) const PARAMETERS: [&str; 7] = [
    "direction",
    "method",
    "path",
    "peer",
    "proxy",
    "rate",
    "status",
];
/// Default and maximum of the requests of a proxy in a second.
const RATES: (usize, usize) = (20, 100);
/// Maximum number of proxies of one tap.
const MOST_PROXIES: usize = 64;
/// Maximum length of a line.
const LONGEST: usize = 16 * 1024;
/// Interval of comments, by which an intermediary notices that the stream is in use.
const ALIVE: Duration = Duration::from_secs(15);

/// What a viewer wants to see.
#[derive(Debug)]
pub(crate) struct Tap {
    proxies: Proxies,
    path: String,
    /// Proxies beyond [`MOST_PROXIES`].
    left_out: usize,
}

impl Tap {
    /// Returns the tap of a query, of the proxies that can be reached.
    pub(crate) fn new(query: &Query, proxies: Proxies) -> Result<Self, QueryError> {
        let rate = query.number("rate", RATES.0, RATES.1)?;
        let mut path = format!("/tap?rate={rate}");
        for name in ["direction", "method", "path", "peer", "status"] {
            if let Some(value) = query.value(name).filter(|value| !value.is_empty()) {
                let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
                path.push_str(&format!("&{name}={value}"));
            }
        }
        let wanted: Vec<&str> = query.values("proxy").collect();
        let is_wanted = |name: &String| wanted.is_empty() || wanted.contains(&&**name);
        let known: Vec<_> = proxies
            .into_iter()
            .filter(|(name, _)| is_wanted(name))
            .collect();
        match known.first() {
            None if !wanted.is_empty() => Err(QueryError(format!(
                "proxy: no proxy is named `{}`",
                wanted.join("`, `")
            ))),
            _ => Ok(Self {
                left_out: known.len().saturating_sub(MOST_PROXIES),
                proxies: known.into_iter().take(MOST_PROXIES).collect(),
                path,
            }),
        }
    }

    /// Sends events until the viewer disconnects.
    pub(crate) async fn run(self, events: mpsc::Sender<Bytes>, stream: Stream) {
        if self.left_out > 0 {
            let limit = json!({"proxies": self.proxies.len(), "left_out": self.left_out});
            // The viewer may have gone.
            let _ = events.send(event("limit", &limit)).await;
        }
        let mut proxies = JoinSet::new();
        for (name, port) in self.proxies {
            let (path, events) = (self.path.clone(), events.clone());
            proxies.spawn(async move {
                let state = |state: &str, reason: Option<&str>| {
                    event(
                        "proxy",
                        &json!({"proxy": name, "state": state, "reason": reason}),
                    )
                };
                let ended = match admin_port::get(&name, &port, &path).await {
                    Err(reason) => reason,
                    Ok(body) => {
                        if events.send(state("connected", None)).await.is_err() {
                            return;
                        }
                        relay(&name, body, &events).await
                    }
                };
                // The viewer may have gone, too.
                let _ = events.send(state("ended", Some(&ended))).await;
            });
        }
        let mut alive = tokio::time::interval(ALIVE);
        loop {
            tokio::select! {
                () = events.closed() => break,
                _ = alive.tick() => {
                    if events.send(Bytes::from_static(b": alive\n\n")).await.is_err() {
                        break;
                    }
                }
            }
        }
        drop(stream);
    }
}

/// Relays the lines of a proxy; returns why it ended.
async fn relay(name: &str, mut body: Incoming, events: &mpsc::Sender<Bytes>) -> String {
    let mut held = BytesMut::new();
    // Requests for which the queue of the viewer had no room.
    let mut missed = 0;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = events.closed() => return String::new(),
        };
        match frame {
            None => return "the proxy ended the stream".to_owned(),
            Some(Err(error)) => return error.to_string(),
            Some(Ok(frame)) => held.extend_from_slice(&frame.into_data().unwrap_or_default()),
        }
        while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
            let line = held.split_to(end + 1);
            let Ok(Value::Object(mut request)) = serde_json::from_slice(&line) else {
                continue;
            };
            request.insert("proxy".to_owned(), name.into());
            let own = request.get("missed").and_then(Value::as_u64);
            missed += own.unwrap_or(0);
            if missed > 0 {
                request.insert("missed".to_owned(), missed.into());
            }
            match events.try_send(event("request", &request.into())) {
                Ok(()) => missed = 0,
                Err(TrySendError::Full(_)) => missed += 1,
                Err(TrySendError::Closed(_)) => return String::new(),
            }
        }
        if held.len() > LONGEST {
            return "the proxy sent a line that is too long".to_owned();
        }
    }
}

fn event(kind: &str, data: &Value) -> Bytes {
    format!("event: {kind}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::page::admin_port::AdminPort;

    fn proxies(count: usize) -> Proxies {
        let port = AdminPort::At(([127, 0, 0, 1], 1).into());
        let names = ('a'..='z').flat_map(|one| ["", "0", "1"].map(|two| format!("{one}{two}")));
        names.take(count).map(|name| (name, port.clone())).collect()
    }

    fn tap(query: &str) -> Result<Tap, QueryError> {
        let two = ["a", "b"].map(|name| (name.to_owned(), proxies(1).remove(0).1));
        Tap::new(&Query::parse(Some(query), &PARAMETERS)?, two.to_vec())
    }

    #[test]
    fn proxies_beyond_the_limit_are_counted() {
        let query = Query::parse(None, &PARAMETERS).unwrap();
        let tap = Tap::new(&query, proxies(MOST_PROXIES + 3)).unwrap();
        assert_eq!((tap.proxies.len(), tap.left_out), (MOST_PROXIES, 3));
        let tap = Tap::new(&query, proxies(MOST_PROXIES)).unwrap();
        assert_eq!(tap.left_out, 0);
    }

    #[test]
    fn filters_are_passed_to_the_proxies() {
        let all = tap("").unwrap();
        assert_eq!((all.proxies.len(), &*all.path), (2, "/tap?rate=20"));
        let one = tap("proxy=b&rate=7&path=/a%26rate=9&status=5xx").unwrap();
        assert_eq!(one.proxies.len(), 1);
        assert_eq!(one.path, "/tap?rate=7&path=%2Fa%26rate%3D9&status=5xx");
        for query in ["rate=0", "rate=101", "rate=x", "proxy=c", "length=3"] {
            assert!(tap(query).is_err(), "{query}");
        }
    }
}
