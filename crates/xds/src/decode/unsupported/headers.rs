//! Unsupported fields of header changes.

use super::{Message, When::NotDefault};

pub(super) const HEADER_VALUE_OPTION: Message = Message {
    rejected: &[],
    nested: &[(1, "header", &HEADER_VALUE)],
};

const HEADER_VALUE: Message = Message {
    rejected: &[(3, "raw_value", NotDefault)],
    nested: &[],
};
