//! The body of a response to a request of the proxy's own.

use std::future::poll_fn;
use std::pin::Pin;

use http::HeaderMap;
use http_body::Body as _;

use crate::protocol::error::ProxyError;
use crate::protocol::message::Response;

/// Reads a response's body until it has more than `most` bytes, and its trailers.
pub(super) async fn read(
    response: Response,
    most: usize,
) -> Result<(Vec<u8>, HeaderMap), ProxyError> {
    let (mut data, mut trailers) = (Vec::new(), HeaderMap::new());
    let mut body = response.body;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        match frame?.into_data() {
            Ok(piece) => data.extend_from_slice(&piece),
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
        if data.len() > most {
            break;
        }
    }
    Ok((data, trailers))
}
