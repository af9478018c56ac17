//! The data plane: sidecar and standalone reverse proxy.
