//! A page: navigation, conditions, what it looks like, and what it has requested.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::connection::Connection;
use crate::TIMEOUT;

/// A window and the preferences of its user.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Width in CSS pixels.
    pub width: u32,
    /// Height in CSS pixels.
    pub height: u32,
    /// Whether the user prefers dark pages.
    pub dark: bool,
}

/// A request of a page, and the bytes of its response.
#[derive(Clone, Debug, Default)]
pub struct RoundTrip {
    /// Where it was sent.
    pub url: String,
    /// The compressed response with its head, when it is complete.
    pub transferred: Option<u64>,
}

/// A page of a browser.
#[derive(Debug)]
pub struct Page {
    connection: Arc<Connection>,
    session: String,
}

impl Page {
    pub(super) async fn new(connection: Arc<Connection>, session: &str) -> Self {
        let page = Self {
            connection,
            session: session.to_owned(),
        };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), json!({})).await;
        }
        // Visible and focused, whatever other windows there are.
        page.call(
            "Emulation.setFocusEmulationEnabled",
            json!({"enabled": true}),
        )
        .await;
        page
    }

    /// Sets the size of the window and the colour scheme. Motion is reduced, so that pictures are stable.
    pub async fn emulate(&self, device: Device) {
        let Device {
            width,
            height,
            dark,
        } = device;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", metrics)
            .await;
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}))
            .await;
    }

    /// Makes the processor appear slower by a factor.
    pub async fn throttle(&self, factor: u32) {
        self.call("Emulation.setCPUThrottlingRate", json!({"rate": factor}))
            .await;
    }

    /// Accepts any certificate: the browser does not know the authority of a test.
    pub async fn accept_any_certificate(&self) {
        self.call(
            "Security.setIgnoreCertificateErrors",
            json!({"ignore": true}),
        )
        .await;
    }

    /// Opens an address.
    pub async fn navigate(&self, url: &str) {
        let result = self.call("Page.navigate", json!({"url": url})).await;
        assert!(
            result["errorText"].is_null(),
            "{url}: {}",
            result["errorText"]
        );
    }

    /// Evaluates an expression, which may be a promise.
    pub async fn evaluate(&self, expression: &str) -> Value {
        let arguments =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.call("Runtime.evaluate", arguments).await;
        let thrown = &result["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown:#}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression, which may be a promise, is true in JavaScript's sense, and returns its value.
    ///
    /// # Panics
    ///
    /// If it is not in time; the message has the expression and the text of the page.
    pub async fn eventually(&self, expression: &str) -> Value {
        // In the page, so that no change is missed between two questions. An expression may fail until elements exist.
        let promise = format!(
            "new Promise((done) => {{
               const end = performance.now() + {};
               const look = async () => {{
                 let value;
                 try {{ value = await ({expression}); }} catch {{ value = undefined; }}
                 if (value || performance.now() > end) done(value);
                 else setTimeout(look, 20);
               }};
               look();
             }})",
            4 * TIMEOUT.as_millis()
        );
        let value = self.evaluate(&promise).await;
        let truthy = !matches!(value, Value::Null | Value::Bool(false))
            && value != json!(0)
            && value != json!("");
        if !truthy {
            let text = self.evaluate("document.body?.innerText").await;
            panic!(
                "timeout: {expression}\nevents: {:?}\nthe page: {text}",
                self.problems()
            );
        }
        value
    }

    /// Closes the page, and with it its connections: a browser has only six to a server.
    pub async fn close(self) {
        self.call("Page.close", json!({})).await;
    }

    /// Presses and releases a key, given by its name in `KeyboardEvent.key`.
    pub async fn press(&self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        for (kind, text) in [("keyDown", text), ("keyUp", "")] {
            let event = json!({"type": kind, "key": key, "text": text});
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Returns the visible part of the page as a picture: `png` or `webp`.
    pub async fn screenshot(&self, format: &str) -> Vec<u8> {
        let picture = self
            .call("Page.captureScreenshot", json!({"format": format}))
            .await;
        let text = picture["data"].as_str().expect("a picture");
        BASE64.decode(text).expect("base64")
    }

    /// Returns all requests of the page so far.
    #[must_use]
    pub fn round_trips(&self) -> Vec<RoundTrip> {
        let mut found: BTreeMap<String, RoundTrip> = BTreeMap::new();
        for event in self.connection.events(&self.session) {
            let id = event.params["requestId"].as_str().unwrap_or_default();
            match event.method.as_str() {
                "Network.requestWillBeSent" => {
                    let url = event.params["request"]["url"].as_str().unwrap_or_default();
                    url.clone_into(&mut found.entry(id.to_owned()).or_default().url);
                }
                "Network.loadingFinished" => {
                    let bytes = event.params["encodedDataLength"]
                        .as_f64()
                        .unwrap_or_default();
                    found.entry(id.to_owned()).or_default().transferred = Some(bytes as u64);
                }
                _ => {}
            }
        }
        // A response may finish without a request that was seen: that of an earlier page.
        found
            .into_values()
            .filter(|round_trip| !round_trip.url.is_empty())
            .collect()
    }

    /// Returns uncaught exceptions and what the browser logs about the page: violated policies, failed requests.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let text = |params: &Value| match params["exceptionDetails"]["exception"]["description"]
            .as_str()
        {
            Some(description) => description.to_owned(),
            None => params.to_string(),
        };
        let events = self.connection.events(&self.session).into_iter();
        let kinds = ["Runtime.exceptionThrown", "Log.entryAdded"];
        let found = events.filter(|event| kinds.contains(&event.method.as_str()));
        found.map(|event| text(&event.params)).collect()
    }

    async fn call(&self, method: &str, params: Value) -> Value {
        self.connection.call(&self.session, method, params).await
    }
}
