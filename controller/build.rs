//! Compresses the page's files, and writes the table of them that `src/assets.rs` includes.

use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> Result<(), Box<dyn Error>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    println!("cargo:rerun-if-changed={}", page.display());
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut files = Vec::new();
    collect(&page, &mut files)?;
    files.sort();
    let mut table = String::from("[\n");
    for (number, path) in files.iter().enumerate() {
        println!("cargo:rerun-if-changed={}", path.display());
        let Some(kind) = content_type(path) else {
            return Err(format!("{}: unknown type of file", path.display()).into());
        };
        let content = fs::read(path)?;
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&content)?;
        let compressed = out.join(format!("{number}.gz"));
        fs::write(&compressed, encoder.finish()?)?;
        let name = path.strip_prefix(&page)?.to_str();
        let name = name.ok_or("a file's name is not UTF-8")?;
        let url = match name {
            "index.html" => "/".to_owned(),
            name => format!("/{name}"),
        };
        writeln!(
            table,
            "    Asset {{ path: {url:?}, content_type: {kind:?}, hash: \"{:016x}\", plain: include_bytes!({path:?}), compressed: include_bytes!({compressed:?}) }},",
            hasher.finish()
        )?;
    }
    table.push(']');
    fs::write(out.join("assets.rs"), table)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => {
                println!("cargo:rerun-if-changed={}", entry.path().display());
                collect(&entry.path(), files)?;
            }
            false => files.push(entry.path()),
        }
    }
    Ok(())
}

fn content_type(path: &Path) -> Option<&'static str> {
    Some(match path.extension().and_then(OsStr::to_str)? {
        "css" => "text/css; charset=utf-8",
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}
