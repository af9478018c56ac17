//! (owned by the edge engineer)
