//! The errors of a controller that was built without Kubernetes.

use super::{Command, Run};

/// Returns why no command is available: all are for clusters.
pub(super) fn command(command: &Command) -> Result<(), String> {
    let name = match command {
        Command::CleanUp { .. } => "clean-up",
        Command::Crds { .. } => "crds",
        Command::Uninject { .. } => "uninject",
    };
    Err(needs_kubernetes(name))
}

/// Returns why the controller cannot run without `--folder`, and names an argument that is for clusters only.
pub(super) fn serve(run: &Run) -> Result<(), String> {
    let arguments = [
        ("--gateways", run.proxies.gateways),
        ("--revision", run.revision.is_some()),
        ("--signer", run.identity.signer.is_some()),
        ("--tuning", run.tuning),
        ("--webhook", run.webhook.is_some()),
    ];
    let passed = arguments.into_iter().find(|(_, passed)| *passed);
    let error = needs_kubernetes(passed.map_or("a controller without --folder", |(name, _)| name));
    Err(format!("{error}, or set --folder DIR"))
}

fn needs_kubernetes(what: &str) -> String {
    format!(
        "{what}: requires Kubernetes, which this maglor-controller was built without; build it with the feature \
         `kubernetes`, which is on by default"
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::Cli;
    use super::*;

    #[test]
    fn what_needs_kubernetes_is_named() {
        let error = |arguments: &[&str]| {
            let arguments = ["maglor-controller"].iter().chain(arguments);
            let run = Cli::parse_from(arguments).run;
            serve(&run).unwrap_err()
        };
        for (arguments, expected) in [
            (
                &[][..],
                "a controller without --folder: requires Kubernetes",
            ),
            (&["--webhook", "127.0.0.1:0"], "--webhook: requires"),
            (&["--gateways"], "--gateways: requires"),
            (&["--tuning"], "--tuning: requires"),
        ] {
            let error = error(arguments);
            assert!(error.starts_with(expected), "{error}");
        }
        let error = command(&Command::Crds { apply: false }).unwrap_err();
        assert!(error.starts_with("crds: requires Kubernetes"), "{error}");
    }
}
