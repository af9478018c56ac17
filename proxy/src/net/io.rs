//! A connection's byte stream, plain or under TLS.
//!
//! An enum instead of a boxed trait: the plain case is a direct call, and the plain socket remains accessible
//! for `splice(2)`.

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A byte stream to a peer.
#[derive(Debug)]
pub(crate) enum Io {
    /// Plain TCP.
    Tcp(TcpStream),
    /// This proxy is the TLS client.
    TlsClient(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    /// This proxy is the TLS server.
    TlsServer(Box<tokio_rustls::server::TlsStream<Rewind>>),
}

/// A byte stream together with bytes already read from it.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Source of further bytes, and destination of written ones.
    pub io: Io,
    /// Bytes already read, which precede those of `io`.
    pub prefix: Bytes,
    /// Guard that is dropped with the stream, such as a count of open connections; `None` if there is none.
    pub guard: Option<Box<dyn Debug>>,
}

impl Io {
    /// Returns the underlying socket.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(tcp) => tcp,
            Self::TlsClient(tls) => tls.get_ref().0,
            Self::TlsServer(tls) => &tls.get_ref().0.inner,
        }
    }

    /// Returns whether bytes are encrypted on the wire.
    pub(crate) fn is_tls(&self) -> bool {
        !matches!(self, Self::Tcp(_))
    }

    /// Returns the TLS session; `None` for a plain connection.
    pub(crate) fn session(&self) -> Option<&rustls::CommonState> {
        match self {
            Self::Tcp(_) => None,
            Self::TlsClient(tls) => Some(tls.get_ref().1),
            Self::TlsServer(tls) => Some(tls.get_ref().1),
        }
    }

    /// Returns the protocol negotiated by ALPN, if any.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.session()?.alpn_protocol()
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::TlsClient(tls) => Pin::new(tls).poll_read(cx, buf),
            Self::TlsServer(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::TlsClient(tls) => Pin::new(tls).poll_write(cx, buf),
            Self::TlsServer(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Self::TlsClient(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
            Self::TlsServer(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(_) => Poll::Ready(Ok(())),
            Self::TlsClient(tls) => Pin::new(tls).poll_flush(cx),
            Self::TlsServer(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::TlsClient(tls) => Pin::new(tls).poll_shutdown(cx),
            Self::TlsServer(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

/// A stream whose first bytes were already read and are read again from memory.
#[derive(Debug)]
pub(crate) struct Rewind<T = TcpStream> {
    inner: T,
    prefix: Bytes,
}

impl<T> Rewind<T> {
    /// Creates a stream that reads `prefix` first, then `inner`.
    pub(crate) fn new(inner: T, prefix: Bytes) -> Self {
        Self { inner, prefix }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewind<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let n = self.prefix.len().min(buf.remaining());
        buf.put_slice(&self.prefix[..n]);
        self.prefix.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewind<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
