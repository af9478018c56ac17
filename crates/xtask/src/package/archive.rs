//! Files in memory to a compressed tar archive, reproducibly.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

/// A file below the root of the system, such as `usr/bin/maglor`.
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Archives entries, which are sorted, and their folders, below `prefix`.
pub(crate) fn tar_gz(entries: &[Entry], prefix: &str, time: u64) -> io::Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    let mut folders = Vec::<String>::new();
    for entry in entries {
        let path = format!("{prefix}{}", entry.path);
        for (end, _) in path.match_indices('/') {
            let folder = &path[..=end];
            if !folders.iter().any(|made| made == folder) {
                let mut header = header(EntryType::Directory, 0o755, 0, time);
                tar.append_data(&mut header, folder, io::empty())?;
                folders.push(folder.to_owned());
            }
        }
        let size = u64::try_from(entry.bytes.len()).map_err(io::Error::other)?;
        let mut header = header(EntryType::Regular, entry.mode, size, time);
        tar.append_data(&mut header, path, &*entry.bytes)?;
    }
    gzip(&tar.into_inner()?)
}

/// Owned by root.
fn header(kind: EntryType, mode: u32, size: u64, time: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Without a time and a name in the header.
pub(crate) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn folders_come_once_and_before_their_files() {
        let entry = |path: &str, mode| Entry {
            path: path.to_owned(),
            mode,
            bytes: b"text".to_vec(),
        };
        let entries = [entry("a/b/one", 0o755), entry("a/two", 0o644)];
        let bytes = tar_gz(&entries, "x/", 7).unwrap();
        assert_eq!(bytes, tar_gz(&entries, "x/", 7).unwrap(), "reproducible");
        let mut archive = tar::Archive::new(GzDecoder::new(&*bytes));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(header.mtime().unwrap(), 7);
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            found.push((path, header.mode().unwrap()));
        }
        let expected = [
            ("x/", 0o755),
            ("x/a/", 0o755),
            ("x/a/b/", 0o755),
            ("x/a/b/one", 0o755),
            ("x/a/two", 0o644),
        ];
        assert_eq!(found, expected.map(|(path, mode)| (path.to_owned(), mode)));
    }
}
