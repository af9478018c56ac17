//! Images of static programs in the format of `docker save`, created without Docker.
//!
//! An archive is a tar of a configuration, one layer, and a manifest that refers to both (Docker Image Specification
//! v1.2). The same files lead to the same bytes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use aws_lc_rs::digest;
use serde_json::json;

use crate::cluster::error::{At as _, ClusterError, run};

/// The block size of a tar, in bytes.
const BLOCK: usize = 512;

/// The contents of an image.
#[derive(Clone, Debug)]
pub struct Image {
    /// The name with the tag, such as `registry.example/app:1`. For Kubernetes, too, a name without a host belongs to
    /// Docker Hub: `maglor-proxy:dev` stands for `docker.io/library/maglor-proxy:dev`.
    pub name: String,
    /// The files: the path on this machine, and the absolute path in the image.
    pub files: Vec<(PathBuf, String)>,
    /// The command that the image runs.
    pub entrypoint: Vec<String>,
}

impl Image {
    /// Creates an image with one static program, which is also its entrypoint.
    #[must_use]
    pub fn of_program(name: &str, binary: &Path) -> Self {
        let program = binary.file_name().unwrap_or_default().to_string_lossy();
        let inside = format!("/{program}");
        Self {
            name: name.to_owned(),
            files: vec![(binary.to_owned(), inside.clone())],
            entrypoint: vec![inside],
        }
    }

    /// Creates an image with one program of this machine, and its shared libraries at the same paths.
    ///
    /// # Errors
    ///
    /// `ldd` does not list the libraries.
    pub fn of_linked_program(name: &str, binary: &Path) -> Result<Self, ClusterError> {
        let mut image = Self::of_program(name, binary);
        // A static program has none, and `ldd` fails; a file that is no program will not start.
        let libraries = run(Command::new("ldd").arg(binary)).or_else(|error| match error {
            ClusterError::Command { detail, .. } if detail.contains(STATIC) => Ok(String::new()),
            error => Err(error),
        })?;
        image.files.extend(libraries.lines().filter_map(library));
        Ok(image)
    }

    /// Writes the archive of the image.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or the archive cannot be written.
    pub fn write(&self, archive: &Path) -> Result<(), ClusterError> {
        let layer = archive.with_extension("layer");
        let result = self.write_with(archive, &layer);
        let _ = fs::remove_file(&layer);
        result
    }

    fn write_with(&self, archive: &Path, layer: &Path) -> Result<(), ClusterError> {
        let digest = {
            let mut tar = Tar::new(Hashing::new(File::create(layer).at(layer)?));
            // A world-writable folder for programs that need one.
            tar.folder("tmp/", 0o1777).at(layer)?;
            for (source, path) in &self.files {
                let mut file = File::open(source).at(source)?;
                let size = file.metadata().at(source)?.len();
                tar.file(path.trim_start_matches('/'), 0o755, size, &mut file)
                    .at(source)?;
            }
            tar.finish().at(layer)?.digest()
        };
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Entrypoint": self.entrypoint,
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        });
        let config = config.to_string();
        let config_digest = digest::digest(&digest::SHA256, config.as_bytes());
        let config_name = format!("{}.json", hex(config_digest.as_ref()));
        let manifest = json!([{
            "Config": config_name,
            "RepoTags": [full_name(&self.name)],
            "Layers": ["layer.tar"],
        }]);

        let mut tar = Tar::new(File::create(archive).at(archive)?);
        let mut text = |name: &str, text: &str| {
            tar.file(name, 0o644, text.len() as u64, &mut text.as_bytes())
                .at(archive)
        };
        text("manifest.json", &manifest.to_string())?;
        text(&config_name, &config)?;
        let mut file = File::open(layer).at(layer)?;
        let size = file.metadata().at(layer)?.len();
        tar.file("layer.tar", 0o644, size, &mut file).at(archive)?;
        tar.finish().at(archive)?;
        Ok(())
    }
}

/// The message of `ldd` for static programs.
const STATIC: &str = "not a dynamic executable";

/// Parses a line of `ldd` into the path of a shared library on the host and its path in an image:
/// `libc.so.6 => /lib/…/libc.so.6 (0x…)`, or the path of the loader alone.
fn library(line: &str) -> Option<(PathBuf, String)> {
    let words = line.split_whitespace();
    let path = words.into_iter().find(|word| word.starts_with('/'))?;
    Some((path.into(), path.to_owned()))
}

/// Returns the full name by which Kubernetes looks up an image.
fn full_name(name: &str) -> String {
    let (first, rest) = name.split_once('/').unwrap_or(("", name));
    let first_is_host = first.contains(['.', ':']) || first == "localhost";
    let repository = match (first_is_host, first.is_empty()) {
        (true, _) => name.to_owned(),
        (false, true) => format!("docker.io/library/{rest}"),
        (false, false) => format!("docker.io/{name}"),
    };
    let tagged = repository
        .rsplit('/')
        .next()
        .is_some_and(|last| last.contains(':'));
    if tagged {
        repository
    } else {
        format!("{repository}:latest")
    }
}

/// Returns the name of the architecture in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A writer of the ustar format (POSIX.1-1988), with files and folders that belong to root and have no timestamps.
struct Tar<W>(W);

impl<W: Write> Tar<W> {
    fn new(writer: W) -> Self {
        Self(writer)
    }

    fn folder(&mut self, path: &str, mode: u32) -> io::Result<()> {
        self.header(path, mode, 0, b'5')
    }

    fn file(
        &mut self,
        path: &str,
        mode: u32,
        size: u64,
        content: &mut dyn io::Read,
    ) -> io::Result<()> {
        self.header(path, mode, size, b'0')?;
        let copied = io::copy(&mut io::Read::take(content, size), &mut self.0)?;
        if copied != size {
            return Err(io::Error::other(
                "the file became shorter while it was read",
            ));
        }
        let rest = (BLOCK - (size % BLOCK as u64) as usize) % BLOCK;
        self.0.write_all(&[0; BLOCK][..rest])
    }

    /// Writes the two empty blocks that end the archive.
    fn finish(mut self) -> io::Result<W> {
        self.0.write_all(&[0; 2 * BLOCK])?;
        self.0.flush()?;
        Ok(self.0)
    }

    fn header(&mut self, path: &str, mode: u32, size: u64, kind: u8) -> io::Result<()> {
        let mut header = [0; BLOCK];
        let too_long = || {
            io::Error::other(format!(
                "image path `{path}` is too long: {} bytes, \
                 maximum 100",
                path.len()
            ))
        };
        header
            .get_mut(..path.len().min(101))
            .filter(|field| field.len() <= 100)
            .ok_or_else(too_long)?
            .copy_from_slice(path.as_bytes());
        let mut octal = |at: usize, digits: usize, value: u64| {
            let text = format!("{value:0digits$o}");
            header[at..at + digits].copy_from_slice(text.as_bytes());
        };
        octal(100, 7, u64::from(mode));
        octal(108, 7, 0);
        octal(116, 7, 0);
        octal(124, 11, size);
        octal(136, 11, 0);
        header[156] = kind;
        header[257..265].copy_from_slice(b"ustar\x0000");
        // The sum is computed with its own field full of spaces.
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.write_all(&header)
    }
}

/// A writer that also computes a hash of the data.
struct Hashing {
    file: File,
    context: digest::Context,
}

impl Hashing {
    fn new(file: File) -> Self {
        Self {
            file,
            context: digest::Context::new(&digest::SHA256),
        }
    }

    fn digest(self) -> String {
        hex(self.context.finish().as_ref())
    }
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.context.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests;
