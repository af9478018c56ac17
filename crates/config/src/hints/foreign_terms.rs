//! Terms of other programs, and the blocks of our own fields, from `foreign_terms.txt` and `blocks.txt`, which are
//! parsed only after an error.

use std::sync::LazyLock;

/// A block of the configuration.
pub(super) struct Block {
    /// The name of its type in [`crate::raw`].
    pub(super) name: &'static str,
    /// A description of the block's place in the configuration.
    place: &'static str,
    /// The names of the block's fields.
    pub(super) fields: Vec<&'static str>,
}

/// The blocks, in the order in which a misplaced field is searched. They are a copy of serde's field names of each
/// type; a test compares them with the schema.
static BLOCKS: LazyLock<Vec<Block>> = LazyLock::new(|| {
    let lines = include_str!("blocks.txt").lines();
    let blocks = lines.filter(|line| !line.starts_with('#')).map(|line| {
        let mut parts = line.split(" | ");
        let mut next = || parts.next().unwrap_or_default();
        Block {
            name: next(),
            place: next(),
            fields: next().split(' ').collect(),
        }
    });
    blocks.collect()
});

/// The message about a word in a certain block.
struct Row {
    block: &'static str,
    words: &'static str,
    help: &'static str,
}

fn rows() -> impl Iterator<Item = Row> {
    let lines = include_str!("foreign_terms.txt").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (block, rest) = line.split_once(": ")?;
            let (words, help) = rest.split_once(" | ")?;
            Some(Row { block, words, help })
        })
}

/// Returns the block with these fields.
pub(super) fn block_of(known: &[&str]) -> Option<&'static Block> {
    let same = |block: &&Block| {
        block.fields.len() == known.len() && known.iter().all(|field| block.fields.contains(field))
    };
    BLOCKS.iter().find(same)
}

/// Returns the block of a type.
pub(super) fn block(name: &str) -> Option<&'static Block> {
    BLOCKS.iter().find(|block| block.name == name)
}

/// Returns whether a word is a field of some block.
pub(crate) fn is_field(word: &str) -> bool {
    BLOCKS.iter().any(|block| block.fields.contains(&word))
}

/// Returns whether a word is a field of the document itself.
pub(crate) fn is_top_level(word: &str) -> bool {
    block("Document").is_some_and(|block| block.fields.contains(&word))
}

/// Returns the replacement for a word, in snake case, that a block does not have.
pub(super) fn of(word: &str, block: &str) -> Option<&'static str> {
    let mut rows = rows().filter(|row| row.block == block);
    let row = rows.find(|row| row.words == "*" || row.words.split(' ').any(|one| one == word));
    row.map(|row| row.help)
}

/// Returns the places where a word is a field, except among the `known` ones.
pub(super) fn elsewhere(word: &str, known: &[&str]) -> Option<String> {
    if matches!(word, "name" | "address" | "interval") || known.is_empty() {
        return None;
    }
    let homes = BLOCKS.iter().filter(|block| block.fields.contains(&word));
    let places: Vec<_> = homes.map(|block| block.place).take(3).collect();
    match places.as_slice() {
        [] => None,
        places => Some(format!("`{word}` is a field of {}", places.join(", of "))),
    }
}

/// Features that Maglor does not have, with alternatives.
const ABSENT: &[(&[&str], &str)] = &[
    (
        &[
            "gzip",
            "compression",
            "compress",
            "brotli",
            "encode",
            "compressor",
        ],
        "bodies are not compressed by the proxy: let the application do it",
    ),
    (
        &["cache", "proxy_cache", "caching", "proxy_cache_path"],
        "responses are not cached by the proxy",
    ),
    (
        &[
            "root",
            "file_server",
            "static",
            "index",
            "try_files",
            "alias",
            "autoindex",
            "directory",
        ],
        "files are not served by the proxy: put a file server behind it, as a cluster",
    ),
    (
        &["cors", "cors_policy", "access_control"],
        "answer preflights in the application, or with `direct_response`; set headers with \
         `response_headers: {set: {access-control-allow-origin: …}}`",
    ),
    (
        &[
            "basic_auth",
            "basicauth",
            "auth_basic",
            "jwt",
            "oauth",
            "oidc",
            "ext_authz",
            "forward_auth",
            "api_key",
        ],
        "the proxy does not check passwords or tokens; `authorization` of a listener uses certificates, addresses, methods and paths",
    ),
    (
        &[
            "lua",
            "wasm",
            "script",
            "plugins",
            "plugin",
            "middlewares",
            "middleware",
        ],
        "scripts and plugins are not supported",
    ),
    (
        &["fastcgi_pass", "uwsgi_pass", "php_fastcgi", "scgi_pass"],
        "only HTTP, gRPC, WebSocket, TCP and TLS are supported upstream",
    ),
    (&["http3", "quic", "h3"], "HTTP/3 is not supported"),
];

/// Returns the message about a word that names a feature Maglor does not have.
pub(super) fn absent(word: &str) -> Option<String> {
    let row = ABSENT.iter().find(|(words, _)| words.contains(&word));
    row.map(|(_, help)| (*help).to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn blocks_are_those_of_the_schema() {
        let schema = crate::schema();
        let defs = schema["$defs"].as_object().unwrap().iter();
        let fields_of = |block: &serde_json::Value| -> BTreeSet<String> {
            let fields = block["properties"].as_object();
            fields
                .into_iter()
                .flat_map(|fields| fields.keys().cloned())
                .collect()
        };
        let mut expected: Vec<_> = defs
            .map(|(name, block)| (name.clone(), fields_of(block)))
            .filter(|(name, fields)| !fields.is_empty() && name != "Policy")
            .collect();
        expected.push(("Document".into(), fields_of(&schema)));
        expected.sort();
        let found = BLOCKS.iter().map(|block| {
            let fields = block.fields.iter().map(|field| (*field).to_owned());
            (block.name.to_owned(), fields.collect())
        });
        let mut found: Vec<_> = found.collect();
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn rows_are_of_blocks_and_of_words_that_are_no_fields() {
        let mut count = 0;
        for row in rows() {
            let block = block(row.block).unwrap_or_else(|| panic!("{}", row.block));
            for word in row.words.split(' ') {
                assert!(!block.fields.contains(&word), "{}.{word}", row.block);
                count += 1;
            }
        }
        assert!(count > 500, "{count}");
    }
}
