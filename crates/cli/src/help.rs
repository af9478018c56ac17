//! `maglor --help`: the commands in groups, on one screen.

use std::fmt::Write as _;

use clap::Command;

/// Headings and their commands, at most 15. Commands for editors, shells and packages, and the counterpart of `install`,
/// are only in the examples and the last lines.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Install", &["install", "inject", "analyze", "check"]),
    (
        "Inspect",
        &[
            "endpoints",
            "graph",
            "receipts",
            "routes",
            "stat",
            "tap",
            "top",
            "why",
        ],
    ),
    ("Plan", &["plan"]),
    ("Identity", &["identity"]),
    ("Try", &["demo"]),
];

pub(crate) const EXAMPLES: &str = "\
Examples:
  maglor install | kubectl apply --server-side -f -
  maglor uninstall | kubectl delete --ignore-not-found -f -
  maglor plan moves --without edge-2

`maglor COMMAND --help` has more. In a browser: `maglor dashboard`. For editors
and shells: `maglor schema`, `maglor completions SHELL`. Other programs:
maglor-proxy, maglor-lab.";

/// Groups the commands in the help of the program.
pub(crate) fn grouped(command: Command) -> Command {
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        // Writing to a string does not fail.
        let _ = writeln!(groups, "\n{heading}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {name:<9}  {about}");
        }
    }
    // The last lines name it: the groups have as many commands as fit on a screen.
    let command = command.mut_subcommand("dashboard", |dashboard| dashboard.hide(true));
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn each_command_is_in_one_group_and_all_are_on_one_screen() {
        let mut command = grouped(crate::Cli::command());
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).collect();
        assert!(grouped.len() <= 15, "{grouped:?}");
        // Commands for editors and shells are in the last line, the counterpart of `install` in the examples.
        grouped.extend(&["completions", "schema", "uninstall"]);
        assert!(
            grouped
                .iter()
                .all(|name| EXAMPLES.contains(&format!("maglor {name}"))
                    || GROUPS.iter().any(|(_, names)| names.contains(name)))
        );
        grouped.sort_unstable();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut visible: Vec<_> = visible.map(Command::get_name).collect();
        visible.sort_unstable();
        assert_eq!(grouped.into_iter().copied().collect::<Vec<_>>(), visible);
        for text in [command.render_help(), command.render_long_help()] {
            let text = text.to_string();
            assert!(text.lines().count() <= 44, "{text}");
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(80), "{longest:?}\n{text}");
        }
    }
}
