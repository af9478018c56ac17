//! The DevTools protocol: commands with their results, and events, on one WebSocket for all pages.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::JoinHandle;
use tokio::time;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::TIMEOUT;

/// The largest message: a screenshot of a whole page.
const LARGEST: usize = 64 << 20;

/// An event of a page, as received.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) method: String,
    pub(super) params: Value,
}

#[derive(Debug, Default)]
struct Received {
    waiting: HashMap<u64, oneshot::Sender<Value>>,
    /// The events of each page, by its session.
    events: HashMap<String, Vec<Event>>,
}

#[derive(Debug)]
pub(super) struct Connection {
    // Held across a send, so that the frames of two commands do not mix.
    sink: AsyncMutex<SplitSink<WebSocketStream<TcpStream>, Message>>,
    received: Arc<Mutex<Received>>,
    next: AtomicU64,
    reader: JoinHandle<()>,
}

impl Connection {
    pub(super) async fn open(port: u16, path: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("the browser accepts");
        let config = WebSocketConfig::default()
            .max_message_size(Some(LARGEST))
            .max_frame_size(Some(LARGEST));
        let url = format!("ws://127.0.0.1:{port}{path}");
        let opened = client_async_with_config(url, stream, Some(config)).await;
        let (sink, source) = opened.expect("a WebSocket to the browser").0.split();
        let received = Arc::new(Mutex::default());
        Self {
            sink: AsyncMutex::new(sink),
            reader: tokio::spawn(read(source, Arc::clone(&received))),
            received,
            next: AtomicU64::new(1),
        }
    }

    /// Runs a command, in a page or (with an empty session) in the browser, and returns its result.
    pub(super) async fn call(&self, session: &str, method: &str, params: Value) -> Value {
        // Only uniqueness matters.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.received.lock().unwrap().waiting.insert(id, sender);
        let mut command = json!({"id": id, "method": method, "params": params});
        if !session.is_empty() {
            command["sessionId"] = session.into();
        }
        let sent = self
            .sink
            .lock()
            .await
            .send(Message::text(command.to_string()))
            .await;
        sent.expect("the browser reads");
        let answer = time::timeout(6 * TIMEOUT, receiver).await;
        let answer = answer.unwrap_or_else(|_| panic!("no result of {method}"));
        let answer = answer.unwrap_or_else(|_| panic!("the browser ended during {method}"));
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    /// Returns the events of a page so far.
    pub(super) fn events(&self, session: &str) -> Vec<Event> {
        let received = self.received.lock().unwrap();
        received.events.get(session).cloned().unwrap_or_default()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(mut source: SplitStream<WebSocketStream<TcpStream>>, received: Arc<Mutex<Received>>) {
    while let Some(Ok(message)) = source.next().await {
        let Ok(text) = message.to_text() else {
            continue;
        };
        let Ok(mut message) = serde_json::from_str::<Value>(text) else {
            continue;
        };
        let mut received = received.lock().unwrap();
        match message["id"]
            .as_u64()
            .and_then(|id| received.waiting.remove(&id))
        {
            // A caller that has stopped waiting needs no result.
            Some(waiting) => drop(waiting.send(message)),
            None => {
                let session = message["sessionId"].as_str().unwrap_or_default().to_owned();
                let method = message["method"].as_str().unwrap_or_default().to_owned();
                let params = message["params"].take();
                received
                    .events
                    .entry(session)
                    .or_default()
                    .push(Event { method, params });
            }
        }
    }
    // Wakes those that wait for a result.
    received.lock().unwrap().waiting.clear();
}
