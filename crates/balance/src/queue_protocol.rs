//! The messages about queues between proxies, and the decisions which queries, answers and reports to send. The
//! transport of the messages, by the proxy's connections or in the simulator's virtual time, is separate.
//!
//! A balancer (an outbound proxy) knows only its own outstanding requests, whereas the inbound proxy of a server knows
//! those of all balancers. Collaborative policies close that gap with small messages:
//!
//! | component | state | file |
//! | --- | --- | --- |
//! | outbound proxy | [`Decision`]: the assignment of one request to an endpoint, step by step | `decision.rs` |
//! | inbound proxy | [`Inbound`]: the true count, admission, reports at a completion | `inbound.rs` |
//! | one inbound proxy a group | [`Ledger`]: the counts of all servers of the group | `ledger.rs` |
//! | all | [`Groups`]: which servers form a group, and which one hosts its ledger | `groups.rs` |
//!
//! Invariant: every message may be lost, late, duplicated, or from a process that has restarted since. In the worst
//! case, a decision is as good as a local one.

mod announce;
mod answer_timeout;
mod classes;
mod decision;
mod groups;
mod inbound;
mod known_hosts;
mod ledger;
mod message;

pub use announce::Announce;
pub use answer_timeout::{AnswerTimeout, Trust};
pub(crate) use classes::Classes;
pub use decision::{Asked, Decision, Step};
pub use groups::Groups;
pub use inbound::{Admitted, Held, Inbound};
pub use known_hosts::KnownHosts;
pub use ledger::{Audit, Ledger, Member};
pub use message::{Admission, Among, Answer, Load, Name, Question, Referral, Report, Ticket};
