//! Messages to the control plane as the body of a request.

use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::protocol::error::ProxyError;
use crate::protocol::message::Source;

/// Request body whose data frames are the messages of a channel.
#[derive(Debug)]
pub(super) struct Outgoing(pub(super) UnboundedReceiver<Bytes>);

impl Source for Outgoing {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        self.0
            .poll_recv(cx)
            .map(|part| part.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::default()
    }
}
