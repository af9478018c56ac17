//! Renews a certificate until the command is stopped.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use maglor_identity::{Fingerprint, Identity, LeafRequest};
use maglor_telemetry::command_line::output;

use super::folder::{Folder, Leaf};
use super::{Error, TICK, show};

/// Delay after a failure. A certificate with a lifetime of a day leaves seven hours for further attempts.
const AGAIN: Duration = Duration::from_secs(10);

/// Renews the certificate `issued`, which is new, at 70 % of its lifetime, and immediately when the authority
/// changes. Never returns: the process is stopped from outside, which leaves each file complete.
pub(super) fn renewed(
    folder: &Folder,
    leaf: &Leaf,
    request: &LeafRequest,
    mut seen: Fingerprint,
    issued: &Identity,
) {
    let mut at = due(issued);
    loop {
        sleep(TICK);
        let look = folder.fingerprint();
        if look == seen && SystemTime::now() < at {
            continue;
        }
        match renew(folder, leaf, request) {
            Ok(issued) => {
                output::print(&format!(
                    "{} renewed, valid until {}\n",
                    request.id,
                    show::date(issued.expires())
                ));
                at = due(&issued);
                seen = look;
            }
            Err(error) => {
                eprintln!(
                    "maglor identity: {}: cannot renew the certificate: {error}",
                    request.id
                );
                // A change of the authority may be incomplete; the next poll will show this.
                at = SystemTime::now() + AGAIN;
                seen = look;
            }
        }
    }
}

/// Returns when to renew. The time is counted from now, because a certificate may be backdated by more than its
/// lifetime.
fn due(issued: &Identity) -> SystemTime {
    let now = SystemTime::now();
    now + issued.renew_after(now)
}

fn renew(folder: &Folder, leaf: &Leaf, request: &LeafRequest) -> Result<Identity, Error> {
    leaf.issue(folder, &folder.authority()?, request)
}
