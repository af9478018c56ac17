//! How calls are spread over the replicas of the called service, which decides what of a placement's
//! traffic leaves its node.

/// See the module's documentation. p(n) and q(n) are the parts of the caller's and of the called service's
/// replicas on node n; each way has its share of an edge's calls that leave their node. Calls of a service
/// to itself are never local by design; the search does not weigh them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Routing {
    /// Every replica is as likely as any other, wherever the call comes from: 1 − Σ p(n)·q(n). What a
    /// mesh does as long as nobody asks for more.
    Even,
    /// Local replicas first, as far as an even share allows: 1 − Σ min(p(n), q(n)), the total variation
    /// distance.
    #[default]
    LocalFirst,
}
