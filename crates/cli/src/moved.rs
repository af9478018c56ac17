//! Commands of release 0.1 that were renamed: using them is an error that shows the new command line.
//!
//! This module will be removed in the next release.

use std::process::ExitCode;

/// Words of a command, and the program and words that replace them. Longer ones come first.
const MOVED: &[(&[&str], &str)] = &[
    (&["advise"], "maglor plan tuning"),
    (&["figures"], "maglor-lab figures"),
    (&["model"], "maglor-lab model"),
    (&["partition"], "maglor plan placement"),
    (&["proxy-service", "plan"], "maglor plan proxy-service"),
    (&["proxy-service"], "maglor plan proxy-service"),
    (&["sim"], "maglor-lab sim"),
    (&["uninject"], "maglor uninstall sidecars"),
];

/// If the arguments are those of a renamed command, prints the error and returns exit code 2.
pub(crate) fn refuse(arguments: &[String]) -> Option<ExitCode> {
    let (old, new) = successor(arguments)?;
    eprintln!("error: `maglor {old}` has another name now; write\n\n    {new}");
    Some(ExitCode::from(2))
}

/// Returns the words of the old command, and the whole new command line.
fn successor(arguments: &[String]) -> Option<(String, String)> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (old, new) = match words.split_first()? {
        // This was a single command for moves, which had only flags.
        (&"plan", rest) if is_flags(rest) => (&["plan"][..], "maglor plan moves"),
        _ => *MOVED.iter().find(|(old, _)| words.starts_with(old))?,
    };
    let rest = words[old.len()..].iter().map(|word| quoted(word));
    let line: Vec<_> = std::iter::once(new.to_owned()).chain(rest).collect();
    Some((old.join(" "), line.join(" ")))
}

fn is_flags(words: &[&str]) -> bool {
    match words.first() {
        None => true,
        Some(word) => word.starts_with('-') && !["-h", "--help"].contains(word),
    }
}

/// Quotes a word for a shell if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn line(arguments: &[&str]) -> Option<String> {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        successor(&arguments).map(|(_, line)| line)
    }

    #[test]
    fn the_new_command_line_is_complete() {
        for (old, new) in [
            (
                &["sim", "--policy", "lor(choices=2)", "--rho", "0.9"][..],
                "maglor-lab sim --policy 'lor(choices=2)' --rho 0.9",
            ),
            (
                &["proxy-service", "plan", "--rho=0.9"],
                "maglor plan proxy-service --rho=0.9",
            ),
            (
                &["proxy-service", "config", "--upstream", "a:1,weight=2"],
                "maglor plan proxy-service config --upstream a:1,weight=2",
            ),
            (&["plan"], "maglor plan moves"),
            (
                &["plan", "--without", "it's"],
                r"maglor plan moves --without 'it'\''s'",
            ),
            (&["partition", ""], "maglor plan placement ''"),
        ] {
            assert_eq!(line(old).as_deref(), Some(new));
        }
    }

    #[test]
    fn present_commands_are_left_alone() {
        for present in [
            &[][..],
            &["--help"],
            &["plan", "--help"],
            &["plan", "moves", "--without", "a"],
            &["plan", "wrong"],
            &["check", "sim"],
        ] {
            assert_eq!(line(present), None, "{present:?}");
        }
    }
}
