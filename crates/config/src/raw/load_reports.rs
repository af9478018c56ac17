//! `load_reports`: what a proxy in front of a server reports to balancers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// Load reports of a server's inbound proxy to balancers, which the policies `a-lsq`, `bounce`, `ledger` and `probe`
/// need. `{}` is enough for all but `ledger`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LoadReports {
    /// Name of the cluster of all servers of the service, including this one, with the policy that its clients use.
    /// Absent: no ledger is kept.
    pub cluster: Option<String>,
    /// Address of this server in the cluster, `IP:PORT` or `unix:/PATH`.
    pub endpoint: Option<String>,
    /// Whether to add ORCA load metrics (`endpoint-load-metrics`) to responses, for other balancers.
    #[schemars(extend("default" = false))]
    pub orca: Option<bool>,
}
