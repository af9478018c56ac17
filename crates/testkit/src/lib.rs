//! Development only: programmable upstreams, certificates, raw HTTP clients.
