//! Health probes that the admin server forwards to the application, for kubelets without mutual TLS.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

/// A probe of the local application, such as `http:8080/healthz`, `tcp:8080` or `grpc:8080/service`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Probe {
    /// The port of the application on the loopback interface.
    pub port: NonZeroU16,
    /// The request that is sent to the application.
    pub question: Question,
}

/// The request of a probe.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Question {
    /// A call of `grpc.health.v1.Health/Check` (gRPC Health Checking Protocol).
    Grpc {
        /// The name of the service to check; empty = the whole server.
        service: String,
    },
    /// A `GET` request with the header fields of the forwarded request; the status of the response is the result.
    Http {
        /// The path with query, including the first `/`.
        path: String,
    },
    /// A TCP connection.
    Tcp,
}

/// The reason why a text is not a valid [`Probe`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProbeError {
    /// The text begins with none of `http:`, `tcp:` and `grpc:`.
    #[error("expected http:PORT/PATH, tcp:PORT or grpc:PORT/SERVICE")]
    Kind,
    /// The path has spaces or characters that are not ASCII, which a request line cannot contain.
    #[error("the path has an invalid character; percent-encode it as %XX")]
    Path,
    /// The port is not a number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
}

impl FromStr for Probe {
    type Err = ProbeError;

    fn from_str(text: &str) -> Result<Self, ProbeError> {
        let (kind, rest) = text.split_once(':').ok_or(ProbeError::Kind)?;
        let (port, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let port = port.parse().map_err(|_| ProbeError::Port)?;
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ProbeError::Path);
        }
        let question = match (kind, path) {
            ("grpc", service) => Question::Grpc {
                service: service.trim_start_matches('/').to_owned(),
            },
            ("http", "") => Question::Http {
                path: "/".to_owned(),
            },
            ("http", path) => Question::Http {
                path: path.to_owned(),
            },
            ("tcp", "") => Question::Tcp,
            _ => return Err(ProbeError::Kind),
        };
        Ok(Self { port, question })
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match &self.question {
            Question::Grpc { service } => write!(f, "grpc:{port}/{service}"),
            Question::Http { path } => write!(f, "http:{port}{path}"),
            Question::Tcp => write!(f, "tcp:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_read_and_written() {
        for text in [
            "http:8080/",
            "http:80/a?b=c#%20",
            "tcp:65535",
            "grpc:1/",
            "grpc:9/a.B",
        ] {
            assert_eq!(text.parse::<Probe>().unwrap().to_string(), text);
        }
        let probe: Probe = "http:8080".parse().unwrap();
        assert_eq!(probe.to_string(), "http:8080/");
        for (text, expected) in [
            ("8080", ProbeError::Kind),
            ("https:8080/", ProbeError::Kind),
            ("tcp:8080/x", ProbeError::Kind),
            ("http:0/", ProbeError::Port),
            ("http:web/", ProbeError::Port),
            ("http:80/ HTTP/1.1\r\nx: y", ProbeError::Path),
            ("http:80/ü", ProbeError::Path),
        ] {
            assert_eq!(text.parse::<Probe>(), Err(expected), "{text}");
        }
    }
}
