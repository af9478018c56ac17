//! A pod without a sidecar, from which other pods are attacked: `attacker`, in a namespace of this name.

use maglor_testkit::cluster::Kubectl;

pub(crate) fn start(kubectl: &Kubectl) {
    kubectl.apply(include_str!("attacker.yaml")).unwrap();
}

/// Waits until it runs.
pub(crate) fn ready(kubectl: &Kubectl) {
    let ready = [
        "wait",
        "--for=condition=Ready",
        "pod/attacker",
        "-n",
        "attacker",
        "--timeout=60s",
    ];
    kubectl.run(&ready).unwrap();
}
