//! Renews a certificate until the command is stopped.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use maglor_identity::{Fingerprint, Identity, LeafRequest};
use maglor_terminal::output;

use super::folder::{Folder, Leaf};
use super::{Error, TICK, show};

/// The delay after a failure; a day's certificate leaves seven hours for further attempts.
const AGAIN: Duration = Duration::from_secs(10);

/// Renews the certificate `issued` just now at 70 % of its lifetime, and at once when the authority
/// changes. Does not return: the process is stopped from outside, and each file is whole at any
/// time.
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
                // A change of the authority may be incomplete: the next poll will show.
                at = SystemTime::now() + AGAIN;
                seen = look;
            }
        }
    }
}

/// Returns when to renew, counted from now: the minutes by which a certificate is backdated may be
/// longer than a short lifetime.
fn due(issued: &Identity) -> SystemTime {
    let now = SystemTime::now();
    now + issued.renew_after(now)
}

fn renew(folder: &Folder, leaf: &Leaf, request: &LeafRequest) -> Result<Identity, Error> {
    leaf.issue(folder, &folder.authority()?, request)
}
