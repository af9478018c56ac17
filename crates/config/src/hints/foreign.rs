//! Recognizes whole configuration files of other programs.

/// The recognized file of another program.
pub(crate) struct Foreign {
    /// The line by which the file was recognized, from 1.
    pub(crate) line: usize,
    pub(crate) message: &'static str,
    pub(crate) help: &'static str,
}

/// A program's file format: a test for its lines, and the message.
struct Kind {
    shows: fn(&str) -> bool,
    message: &'static str,
    help: &'static str,
}

/// The known formats. The first one that a line matches applies, so the most specific ones come first.
const KINDS: &[Kind] = &[
    Kind {
        shows: is_caddy,
        message: "this is a configuration of Caddy; the proxy reads YAML",
        help: "a site is a virtual host with `domains`, `reverse_proxy` a route's `cluster` with its `endpoints` among \
               `clusters`, `handle_path` a `match` with `rewrite`: docs/recipes/migration.md",
    },
    Kind {
        shows: is_nginx,
        message: "this is a configuration of nginx; the proxy reads YAML",
        help: "`upstream` is one of `clusters`, `listen` a listener's `address`, `server_name` a virtual host's `domains`, \
               `location` a route with `match: {path: …}`, `proxy_pass` its `cluster`: docs/recipes/migration.md",
    },
    Kind {
        shows: is_haproxy,
        message: "this is a configuration of HAProxy; the proxy reads YAML",
        help: "`frontend` is a listener, `bind` its `address`, `backend` one of `clusters`, `server` an endpoint, `balance` \
               its `policy`, `use_backend … if` a route with `match`: docs/recipes/migration.md",
    },
    Kind {
        shows: is_toml,
        message: "this is TOML; the proxy reads YAML",
        help: "write `listeners: [{name: web, address: \"127.0.0.1:8080\", …}]`; docs/configuration.md starts with an example",
    },
    Kind {
        shows: |line| {
            line.starts_with("<?xml") || line.starts_with("<html") || line.starts_with("<!DOCTYPE")
        },
        message: "this is XML or HTML; the proxy reads YAML",
        help: "docs/configuration.md starts with an example",
    },
    Kind {
        shows: |line| line.starts_with("-----BEGIN "),
        message: "this is a certificate or key; the proxy reads YAML",
        help: "name it in a configuration: `tls: {certificate: FILE, private_key: FILE}` of a listener",
    },
];

/// Recognizes a text that is a file of another program.
pub(crate) fn recognise(text: &str) -> Option<Foreign> {
    let lines = text.lines().map(str::trim_end).enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.trim().starts_with('#'));
    for (at, line) in lines.take(200) {
        if let Some(kind) = KINDS.iter().find(|kind| (kind.shows)(line)) {
            return Some(Foreign {
                line: at + 1,
                message: kind.message,
                help: kind.help,
            });
        }
    }
    None
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

/// Matches the head of a block of nginx, `WORD … {`, or a statement, `WORD …;`.
fn is_nginx(line: &str) -> bool {
    let line = line.trim();
    let statement = line.ends_with(';') && !line.contains(": ");
    let blocks = [
        "events", "http", "server", "location", "upstream", "stream", "map", "if",
    ];
    let block = line.ends_with('{') || line.ends_with('}');
    let word = first_word(line).trim_end_matches('{');
    (block && blocks.contains(&word) && !line.contains(": "))
        || (statement
            && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            && line.contains(' '))
}

/// Matches a section of HAProxy, at the beginning of a line and without colon.
fn is_haproxy(line: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    match words.as_slice() {
        ["global" | "defaults"] => !line.starts_with(' '),
        ["frontend" | "backend" | "listen" | "defaults", name, ..] => {
            !line.starts_with(' ') && !line.contains(": ") && *name != "{"
        }
        _ => false,
    }
}

/// Matches a directive of Caddy, or a site: `example.com {`, `:8080 {`.
fn is_caddy(line: &str) -> bool {
    let trimmed = line.trim();
    let word = first_word(trimmed);
    let directives = [
        "reverse_proxy",
        "file_server",
        "respond",
        "encode",
        "handle",
        "handle_path",
        "php_fastcgi",
        "redir",
    ];
    let directive = directives.contains(&word)
        && trimmed != word
        && !trimmed.ends_with(';')
        && !trimmed.contains(": ");
    let head = trimmed.strip_suffix('{').map(str::trim_end);
    let site = head.is_some_and(|head| {
        !head.contains(' ')
            && !head.ends_with(':')
            && (head.contains('.') || head.starts_with(':') || head == "localhost")
    });
    directive || (site && !line.starts_with([' ', '\t']))
}

/// Matches TOML: `[table]`, `[[table]]` or `key = value`.
fn is_toml(line: &str) -> bool {
    let name = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    let table = line
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let table = table.map(|inner| inner.trim_start_matches('[').trim_end_matches(']'));
    let pair = line
        .split_once(" = ")
        .is_some_and(|(key, _)| name(key.trim()));
    table.is_some_and(name) || pair
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_configuration_of_ours_show_nothing() {
        let examples = [
            include_str!("../../../../deploy/examples/virtual-hosts.yaml"),
            "listeners:\n- name: web\n  http: {\n    routes: main\n  }\nlisten: 80;",
            "{\"listeners\": [\n  {\"name\": \"web\"}\n]}",
        ];
        for text in examples {
            let found = recognise(text).map(|found| found.message);
            assert_eq!(found, None, "{text}");
        }
    }
}
