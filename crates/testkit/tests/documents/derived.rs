//! The structs and enums of a source file that clap derives command lines from.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A type with its attributes read.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Fields(Vec<Field>),
    Variants(Vec<Variant>),
}

#[derive(Clone, Debug)]
pub(crate) enum Field {
    /// A flag: its names with dashes.
    Flag {
        names: Vec<String>,
        value: bool,
        global: bool,
    },
    /// The flags or subcommands of another type.
    Of(String),
    Word {
        passes_on: bool,
    },
}

/// A subcommand.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
    /// The type of its flags.
    pub(crate) of: Option<String>,
}

/// An attribute's items: name, and value.
type Attributes = Vec<(String, Option<String>)>;

/// The types of a file from which clap derives something.
pub(crate) fn items(file: &str, text: &str) -> Vec<Item> {
    let tokens: TokenStream = text
        .parse()
        .unwrap_or_else(|error| panic!("{file}: {error}"));
    let (mut items, mut attributes) = (Vec::new(), String::new());
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let word = token.to_string();
        match &token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                attributes.push_str(&word);
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => attributes.clear(),
            TokenTree::Punct(mark) if mark.as_char() == ';' => attributes.clear(),
            TokenTree::Ident(_) if word == "struct" || word == "enum" => {
                let name = tokens.next().map(|name| name.to_string());
                let body = match tokens.peek() {
                    Some(TokenTree::Group(group)) => group.stream(),
                    _ => continue,
                };
                if ["Args", "Parser", "Subcommand"]
                    .iter()
                    .any(|one| attributes.contains(one))
                {
                    let kind = match word.as_str() {
                        "struct" => Kind::Fields(fields(body)),
                        _ => Kind::Variants(split(body).into_iter().filter_map(variant).collect()),
                    };
                    items.extend(name.map(|name| Item { name, kind }));
                }
            }
            _ => {}
        }
    }
    items
}

fn fields(body: TokenStream) -> Vec<Field> {
    split(body).into_iter().filter_map(field).collect()
}

fn field(tokens: Vec<TokenTree>) -> Option<Field> {
    let (attributes, rest) = attributes(tokens);
    let text: String = rest.iter().map(ToString::to_string).collect();
    let (name, kind) = text.split_once(':')?;
    // `pub(super)name`.
    let name = name.rsplit([')', ' ']).next().unwrap_or(name);
    let name = name
        .strip_prefix("pub")
        .unwrap_or(name)
        .trim_start_matches("r#");
    let find = |wanted: &str| attributes.iter().find(|(name, _)| name == wanted);
    if find("flatten").is_some() || find("subcommand").is_some() {
        return Some(Field::Of(bare(kind)));
    }
    if find("skip").is_some() {
        return None;
    }
    let mut names = Vec::new();
    if let Some((_, value)) = find("long") {
        let own = || name.trim_matches('_').replace('_', "-");
        names.push(format!("--{}", value.clone().unwrap_or_else(own)));
    }
    if let Some((_, value)) = find("short") {
        let own = || name.chars().take(1).collect();
        names.push(format!("-{}", value.clone().unwrap_or_else(own)));
    }
    if names.is_empty() {
        let passes_on = find("trailing_var_arg").is_some();
        return Some(Field::Word { passes_on });
    }
    let set = find("action").is_some_and(|(_, value)| value.as_deref() == Some("Set"));
    let value = set || !matches!(kind, "bool" | "Option<bool>");
    let global = find("global").is_some();
    Some(Field::Flag {
        names,
        value,
        global,
    })
}

fn variant(tokens: Vec<TokenTree>) -> Option<Variant> {
    let (attributes, rest) = attributes(tokens);
    // Programs start themselves with these; documents show none of them.
    if attributes.iter().any(|(name, _)| name == "hide") {
        return None;
    }
    let own = kebab(&rest.first()?.to_string());
    let given = attributes.into_iter().find(|(name, _)| name == "name");
    let mut variant = Variant {
        name: given.and_then(|(_, value)| value).unwrap_or(own),
        fields: Vec::new(),
        of: None,
    };
    match rest.get(1) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            variant.fields = fields(group.stream());
        }
        Some(TokenTree::Group(group)) => {
            let kind: String = group
                .stream()
                .into_iter()
                .map(|one| one.to_string())
                .collect();
            variant.of = Some(bare(&kind));
        }
        _ => {}
    }
    Some(variant)
}

/// The attributes for clap before a field or a variant, and what follows.
fn attributes(tokens: Vec<TokenTree>) -> (Attributes, Vec<TokenTree>) {
    let (mut found, mut rest) = (Vec::new(), Vec::new());
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match (&token, tokens.peek()) {
            (TokenTree::Punct(mark), Some(TokenTree::Group(group))) if mark.as_char() == '#' => {
                let mut inside = group.stream().into_iter();
                let name = inside
                    .next()
                    .map(|name| name.to_string())
                    .unwrap_or_default();
                if let (true, Some(TokenTree::Group(list))) =
                    (["arg", "command"].contains(&&*name), inside.next())
                {
                    found.extend(split(list.stream()).iter().map(|one| setting(one)));
                }
                tokens.next();
            }
            _ => rest.push(token),
        }
    }
    (found, rest)
}

/// `NAME`, or `NAME = VALUE`; of a path the last part.
fn setting(tokens: &[TokenTree]) -> (String, Option<String>) {
    let name = tokens.first().map(ToString::to_string).unwrap_or_default();
    let value = tokens
        .get(2..)
        .and_then(<[_]>::last)
        .map(ToString::to_string);
    let plain = |value: String| value.trim_matches(['"', '\'']).to_owned();
    (name, value.map(plain))
}

/// The pieces between commas.
fn split(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut pieces = vec![Vec::new()];
    let mut depth = 0;
    for token in tokens {
        let mark = match &token {
            TokenTree::Punct(mark) => mark.as_char(),
            _ => ' ',
        };
        match mark {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        match pieces.last_mut() {
            Some(piece) if mark != ',' || depth > 0 => piece.push(token),
            _ => pieces.push(Vec::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// A type without `Box` and `Option` around it.
fn bare(kind: &str) -> String {
    let inner = kind.rsplit('<').next().unwrap_or(kind);
    inner.trim_end_matches('>').to_owned()
}

fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.extend(c.to_lowercase());
    }
    kebab
}
