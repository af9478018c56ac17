//! Error codes of streams and connections (RFC 9113, section 7).

/// An error code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(crate) enum Reason {
    /// No error.
    NoError = 0,
    /// The peer has violated a rule that has no code of its own.
    Protocol = 1,
    /// This side cannot finish the request.
    Internal = 2,
    /// The peer has sent, or allowed, more bytes than are permitted.
    FlowControl = 3,
    /// The peer has not acknowledged settings.
    SettingsTimeout = 4,
    /// A frame was received for a stream that has ended.
    StreamClosed = 5,
    /// A frame has a wrong length.
    FrameSize = 6,
    /// The request was not processed and may be sent again.
    RefusedStream = 7,
    /// The request is cancelled.
    Cancel = 8,
    /// A field block cannot be decoded.
    Compression = 9,
    /// The connection behind a CONNECT request has failed.
    Connect = 10,
    /// The peer exceeds a limit on the work that it causes.
    EnhanceYourCalm = 11,
    /// The transport is not secure enough.
    InadequateSecurity = 12,
    /// The request must be sent over HTTP/1.1.
    Http11Required = 13,
}

impl Reason {
    /// Returns the name of the code in the RFC.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoError => "NO_ERROR",
            Self::Protocol => "PROTOCOL_ERROR",
            Self::Internal => "INTERNAL_ERROR",
            Self::FlowControl => "FLOW_CONTROL_ERROR",
            Self::SettingsTimeout => "SETTINGS_TIMEOUT",
            Self::StreamClosed => "STREAM_CLOSED",
            Self::FrameSize => "FRAME_SIZE_ERROR",
            Self::RefusedStream => "REFUSED_STREAM",
            Self::Cancel => "CANCEL",
            Self::Compression => "COMPRESSION_ERROR",
            Self::Connect => "CONNECT_ERROR",
            Self::EnhanceYourCalm => "ENHANCE_YOUR_CALM",
            Self::InadequateSecurity => "INADEQUATE_SECURITY",
            Self::Http11Required => "HTTP_1_1_REQUIRED",
        }
    }

    /// Converts a received code. Unknown codes have no special meaning (section 7).
    pub(super) fn of(code: u32) -> Self {
        const ALL: [Reason; 14] = [
            Reason::NoError,
            Reason::Protocol,
            Reason::Internal,
            Reason::FlowControl,
            Reason::SettingsTimeout,
            Reason::StreamClosed,
            Reason::FrameSize,
            Reason::RefusedStream,
            Reason::Cancel,
            Reason::Compression,
            Reason::Connect,
            Reason::EnhanceYourCalm,
            Reason::InadequateSecurity,
            Reason::Http11Required,
        ];
        let known = usize::try_from(code).ok().and_then(|code| ALL.get(code));
        known.copied().unwrap_or(Self::Internal)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A violation of the protocol that ends the connection (section 5.4.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what} ({reason})")]
pub(crate) struct Malformed {
    /// The code of the GOAWAY frame.
    pub reason: Reason,
    what: &'static str,
}

impl Malformed {
    pub(super) const fn new(reason: Reason, what: &'static str) -> Self {
        Self { reason, what }
    }

    /// Returns what is wrong.
    pub(super) fn what(self) -> &'static str {
        self.what
    }

    pub(super) const fn protocol(what: &'static str) -> Self {
        Self::new(Reason::Protocol, what)
    }

    pub(super) const fn size(what: &'static str) -> Self {
        Self::new(Reason::FrameSize, what)
    }

    pub(super) const fn flow(what: &'static str) -> Self {
        Self::new(Reason::FlowControl, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_registry() {
        for code in 0..=13 {
            assert_eq!(Reason::of(code) as u32, code);
        }
        assert_eq!(Reason::of(14), Reason::Internal);
        assert_eq!(Reason::of(u32::MAX), Reason::Internal);
    }
}
