//! A response defined by a test.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::body::{self, Body};

/// A response; sent when the body of the request has been read.
#[derive(Clone, Debug)]
pub struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
    delay: Duration,
    close: bool,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            trailers: HeaderMap::new(),
            delay: Duration::ZERO,
            close: false,
        }
    }
}

impl Answer {
    /// Creates an empty response.
    ///
    /// # Panics
    ///
    /// If the status is invalid.
    #[must_use]
    #[track_caller]
    pub fn status(status: u16) -> Self {
        Self {
            status: StatusCode::from_u16(status).expect("a status code"),
            ..Self::default()
        }
    }

    /// Creates a 200 response with a body.
    #[must_use]
    pub fn text(body: impl Into<Bytes>) -> Self {
        Self::default().body(body)
    }

    /// Closes the connection, or resets the stream in HTTP/2, instead of responding.
    #[must_use]
    pub fn close() -> Self {
        Self {
            close: true,
            ..Self::default()
        }
    }

    /// Adds a header field.
    #[must_use]
    #[track_caller]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        append(&mut self.headers, name, value);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Adds a trailer field, so that the body has no length.
    #[must_use]
    #[track_caller]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        append(&mut self.trailers, name, value);
        self
    }

    /// Delays the response by this time.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    pub(super) async fn respond(self) -> io::Result<Response<Body>> {
        tokio::time::sleep(self.delay).await;
        if self.close {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let mut response = if self.trailers.is_empty() {
            Response::new(body::full(self.body))
        } else {
            body::with_trailers(self.body, self.trailers)
        };
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.headers);
        Ok(response)
    }
}

#[track_caller]
fn append(headers: &mut HeaderMap, name: &str, value: &str) {
    let name = HeaderName::from_bytes(name.as_bytes()).expect("the name of a header");
    headers.append(
        name,
        HeaderValue::from_str(value).expect("the value of a header"),
    );
}
