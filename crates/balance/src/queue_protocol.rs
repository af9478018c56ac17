//! What proxies send each other about queues, as values: the code that decides what to ask, what to
//! answer and what to report. Who carries it, the proxy over its connections or the simulator
//! through virtual time, is not its business.
//!
//! A balancer (an outbound proxy) sees its own outstanding requests only. The inbound proxy beside a
//! server sees all of them. Collaborative policies close that gap with small messages:
//!
//! | who | part | file |
//! | --- | --- | --- |
//! | outbound proxy | [`Decision`]: one request's way to an endpoint, step by step | `decision.rs` |
//! | inbound proxy | [`Inbound`]: the true count, admission, what to report at a completion | `inbound.rs` |
//! | one inbound proxy a group | [`Ledger`]: the counts of all servers of the group | `ledger.rs` |
//! | one inbound proxy a group | [`Board`]: the names of idle servers | `board.rs` |
//! | everybody | [`Groups`]: which servers form a group, and where its ledger lives | `groups.rs` |
//!
//! Invariant: every message may be lost, late, doubled or from a process that has restarted since;
//! the worst that follows is a decision as good as a local one.

mod announce;
mod board;
mod classes;
mod decision;
mod groups;
mod inbound;
mod ledger;
mod message;
mod patience;

pub use announce::Announce;
pub use board::Board;
pub(crate) use classes::Classes;
pub use decision::{Asked, Decision, Step};
pub use groups::Groups;
pub use inbound::{Admitted, Held, Inbound};
pub use ledger::{Audit, Ledger, Member};
pub use message::{Admission, Among, Answer, Load, Name, Question, Referral, Report, Ticket};
pub(crate) use patience::{Patience, Trust};
