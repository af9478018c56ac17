//! A connection after an upgrade: an echo of bytes or of WebSocket messages.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::record::OpenConnection;

/// The largest message of the WebSocket echo.
const LARGEST: usize = 64 << 20;

/// Sends back every byte until the client has sent its last.
pub(super) fn echo_bytes(upgrade: OnUpgrade, open: Arc<OpenConnection>) {
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
            // Errors mean that the client has disconnected.
            let _ = copy(&mut reader, &mut writer).await;
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut writer).await;
        }
        drop(open);
    });
}

/// Sends back every message until the client closes.
pub(super) fn echo_messages(upgrade: OnUpgrade, open: Arc<OpenConnection>) {
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let config = WebSocketConfig::default()
                .max_message_size(Some(LARGEST))
                .max_frame_size(Some(LARGEST));
            let stream = TokioIo::new(upgraded);
            let mut socket =
                WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
            while let Some(Ok(message)) = socket.next().await {
                // The library responds to pings and to the close.
                let is_data = message.is_text() || message.is_binary();
                if is_data && socket.send(message).await.is_err() {
                    break;
                }
            }
        }
        drop(open);
    });
}
