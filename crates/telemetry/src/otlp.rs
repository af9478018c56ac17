//! Spans in the protobuf encoding of OTLP (`opentelemetry/proto/trace/v1/trace.proto`, version 1).
//!
//! A span is encoded when it has ended, so that one that waits for its batch takes a few hundred bytes and no
//! structure; a batch is a concatenation. Spans are written field by field, without a message of owned texts first;
//! responses are decoded by prost.

mod attributes;
mod request;
mod span;
mod wire;

pub use attributes::Attributes;
pub use request::{PartialSuccess, Resource, partial_success};
pub use span::{Kind, Span};
