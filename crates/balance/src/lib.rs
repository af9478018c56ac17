//! Decisions of the data plane: policies, endpoint statistics, admission. Pure: no I/O, no clock, no global randomness.
