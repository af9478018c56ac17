//! gRPC calls of the proxy itself: to the control plane, and to an application that is probed.
//!
//! They use the same connection type as clients' requests, since other types of streams or bodies would cause HTTP/2
//! to be compiled a second time.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use http_body::{Body as _, Frame};

use super::receiving::Receiving;
use super::sending::Sending;
use super::{Busy, Http2, Terms, Upload, answered};
use crate::net::io::Io;
use crate::protocol::error::ProxyError;
use crate::protocol::message::Body;

/// Parameters of connections for calls. An answer may have several megabytes and a long network path.
const CALLS: Terms = Terms {
    window: 2 * 1024 * 1024,
    keepalive: Duration::from_secs(7),
};

/// Body of an answer. Dropping it ends the call.
#[derive(Debug)]
pub(crate) struct Answer {
    body: Receiving,
    _upload: Option<Upload>,
    _busy: Busy,
}

impl Answer {
    /// Returns the next frame; an error if the call ends early.
    pub(crate) async fn frame(&mut self) -> Option<Result<Frame<Bytes>, h2::Error>> {
        poll_fn(|cx| self.body.poll_frame(cx)).await
    }
}

impl Http2 {
    /// Starts HTTP/2 on a connection for calls of the proxy itself.
    ///
    /// # Errors
    /// If the preface cannot be sent.
    pub(crate) async fn for_calls(io: Io) -> Result<Self, h2::Error> {
        Self::start_on(io, CALLS).await
    }

    /// Sends a request, and continues to send its body after the head of the answer has arrived.
    ///
    /// # Errors
    /// If the connection or the stream ends before the head of the answer has arrived.
    pub(crate) async fn call(
        &self,
        request: http::Request<()>,
        body: Body,
    ) -> Result<(Parts, Answer), ProxyError> {
        let busy = Busy::new(&self.0);
        let mut sender = self.0.sender.clone();
        let ready = poll_fn(|cx| sender.poll_ready(cx)).await;
        ready.map_err(ProxyError::UpstreamHttp2)?;
        let end = body.is_end_stream();
        let sent = sender.send_request(request, end);
        let (response, stream) = sent.map_err(ProxyError::UpstreamHttp2)?;
        let upload = (!end).then(|| Sending::new(body, stream, &self.0.outflow));
        let (response, upload) = answered(None, response, upload).await?;
        let (parts, stream) = response.into_parts();
        let answer = Answer {
            body: Receiving::new(stream, None),
            _upload: upload.map(Upload::start),
            _busy: busy,
        };
        Ok((parts, answer))
    }
}
