//! Metric registry, logs and trace context.
