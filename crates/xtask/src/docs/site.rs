//! The finished site, checked: every link between its files leads to a file and an anchor.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::links::resolve;

/// The page for a wrong address: its links are relative to the root of a server.
const NOT_FOUND: &str = "404.html";

/// Checks all links and returns their number.
pub(crate) fn check(site: &Path) -> Result<usize, String> {
    let mut pages = BTreeMap::new();
    collect(site, "", &mut pages)?;
    pages.remove(NOT_FOUND);
    let anchors: BTreeMap<_, _> = pages
        .iter()
        .map(|(path, html)| (path.as_str(), values(html, "id")))
        .collect();
    let (mut dead, mut links) = (Vec::new(), 0);
    for (path, html) in &pages {
        let targets = values(html, "href").into_iter().chain(values(html, "src"));
        for target in targets.filter(|target| is_internal(target)) {
            links += 1;
            if !leads_somewhere(site, path, target, &anchors) {
                dead.push(format!("{path}: dead link to {target}"));
            }
        }
    }
    match dead.is_empty() {
        true => Ok(links),
        false => Err(dead.join("\n")),
    }
}

fn is_internal(target: &str) -> bool {
    !target.is_empty() && !target.contains(':')
}

fn leads_somewhere(
    site: &Path,
    from: &str,
    target: &str,
    anchors: &BTreeMap<&str, BTreeSet<&str>>,
) -> bool {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => from.to_owned(),
        file => resolve(from, file),
    };
    if anchor.is_empty() {
        return site.join(path).is_file();
    }
    let known = anchors.get(path.as_str());
    known.is_some_and(|known| known.contains(anchor))
}

/// The values of an attribute in a page.
fn values<'a>(html: &'a str, attribute: &str) -> BTreeSet<&'a str> {
    let begin = format!(" {attribute}=\"");
    let pieces = html.split(&begin).skip(1);
    pieces.filter_map(|piece| piece.split('"').next()).collect()
}

fn collect(site: &Path, folder: &str, pages: &mut BTreeMap<String, String>) -> Result<(), String> {
    let entries = fs::read_dir(site.join(folder)).map_err(|error| format!("{folder}: {error}"))?;
    for entry in entries.flatten() {
        let path = resolve(&format!("{folder}/"), &entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(site, &path, pages)?;
        } else if path.ends_with(".html") {
            let html =
                fs::read_to_string(entry.path()).map_err(|error| format!("{path}: {error}"))?;
            pages.insert(path, html);
        }
    }
    Ok(())
}
