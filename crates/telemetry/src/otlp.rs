//! Spans in the protobuf encoding of OTLP (`opentelemetry/proto/trace/v1/trace.proto`, version 1).
//!
//! A span is encoded when it has ended, so that one that waits for its batch takes a few hundred bytes and
//! no structure; a batch is a concatenation. The messages are few and only written, so they are written
//! field by field; no message is built first.

mod attributes;
mod request;
mod span;
mod wire;

pub use attributes::Attributes;
pub use request::{PartialSuccess, Resource, partial_success};
pub use span::{Kind, Span};
