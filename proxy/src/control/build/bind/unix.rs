//! Unix sockets: creation, permissions and removal of a listener's file.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use maglor_config::UnixAddress;
use socket2::{Domain, Socket, Type};

use super::BACKLOG;
use crate::net::socket;

/// Maximum time to wait for the lock while another process examines sockets in the same directory.
const LOCKED: Duration = Duration::from_secs(1);

/// File of a listening Unix socket; removed on drop unless another socket has replaced it.
#[derive(Debug)]
pub(crate) struct UnixFile {
    path: PathBuf,
    id: Id,
}

impl UnixFile {
    fn new(path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        let id = id(&path)?;
        Ok(Self { path, id })
    }

    /// Sets the permissions of the file.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::set_permissions(&self.path, Permissions::from_mode(mode))
    }
}

impl Drop for UnixFile {
    fn drop(&mut self) {
        if id(&self.path).is_ok_and(|id| id == self.id)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a socket's file");
        }
    }
}

/// Device, inode and modification time of a socket's file. Inode numbers alone are not sufficient, since they are
/// reused. The modification time is stable: a socket's file is never written, and a change of permissions does not
/// affect this time.
type Id = (u64, u64, i64, i64);

fn id(path: &Path) -> io::Result<Id> {
    let metadata = fs::symlink_metadata(path)?;
    let made = (metadata.mtime(), metadata.mtime_nsec());
    Ok((metadata.dev(), metadata.ino(), made.0, made.1))
}

/// Binds a listening socket; replaces a stale file that an ended process has left.
pub(super) fn bind(
    address: &UnixAddress,
    mode: u32,
) -> io::Result<(UnixListener, Option<UnixFile>)> {
    let Some(path) = address.path() else {
        let socket = listen(address, None)?;
        return Ok((socket, None));
    };
    // Two processes that find the same stale file must not remove each other's new file.
    let _lock = lock(path.parent());
    make_room(address, path)?;
    let socket = listen(address, Some(mode))?;
    let file = UnixFile::new(path)?;
    file.set_mode(mode)?;
    Ok((socket, Some(file)))
}

/// Returns an error if a listener cannot use the address.
pub(super) fn probe(address: &UnixAddress) -> io::Result<()> {
    let Some(path) = address.path() else {
        return match socket::is_live(address) {
            true => Err(io::ErrorKind::AddrInUse.into()),
            false => Ok(()),
        };
    };
    if is_stale(address, path)? {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    match fs::metadata(folder)?.is_dir() {
        true => Ok(()),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// Removes a socket file that no process listens on.
fn make_room(address: &UnixAddress, path: &Path) -> io::Result<()> {
    if is_stale(address, path)? {
        tracing::info!(path = %path.display(), "replacing a socket's file that no process listens on");
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Returns whether there is a stale socket; fails if anything else exists at the path.
fn is_stale(address: &UnixAddress, path: &Path) -> io::Result<bool> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !kind.is_socket() {
        let what = "the file exists and is not a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    if socket::is_live(address) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    Ok(true)
}

fn listen(address: &UnixAddress, mode: Option<u32>) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if let Some(mode) = mode {
        // The file is created with the permissions of the socket, so that it is never open to more users than
        // configured.
        let file = File::from(OwnedFd::from(socket.try_clone()?));
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    socket.bind(&socket::sock_addr(address)?)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Takes the directory's lock; `None` if it is not available in time.
fn lock(folder: Option<&Path>) -> Option<File> {
    let folder = File::open(folder?).ok()?;
    let until = Instant::now() + LOCKED;
    while folder.try_lock().is_err() {
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(folder: &tempfile::TempDir, name: &str) -> UnixAddress {
        let text = format!("unix:{}", folder.path().join(name).display());
        UnixAddress::parse(&text).unwrap().unwrap()
    }

    fn mode(address: &UnixAddress) -> u32 {
        fs::metadata(address.path().unwrap()).unwrap().mode() & 0o777
    }

    #[test]
    fn a_stale_file_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let address = at(&folder, "app.sock");
        let (socket, file) = bind(&address, 0o600).unwrap();
        assert_eq!(mode(&address), 0o600);
        let kind = |result: io::Result<_>| result.err().map(|error| error.kind());
        let in_use = Some(io::ErrorKind::AddrInUse);
        assert_eq!(kind(bind(&address, 0o600).map(drop)), in_use);
        assert_eq!(kind(probe(&address)), in_use);
        // The state that a killed process leaves.
        drop(socket);
        std::mem::forget(file);
        assert!(probe(&address).is_ok() && address.path().unwrap().exists());
        let (_socket, file) = bind(&address, 0o666).unwrap();
        assert_eq!(mode(&address), 0o666);
        drop(file);
        assert!(!address.path().unwrap().exists());
    }

    #[test]
    fn another_processes_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let address = at(&folder, "app.sock");
        let (socket, first) = bind(&address, 0o600).unwrap();
        drop(socket);
        let (_socket, second) = bind(&address, 0o600).unwrap();
        drop(first);
        assert!(address.path().unwrap().exists());
        drop(second);
        assert!(!address.path().unwrap().exists());
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let address = at(&folder, "text");
        fs::write(address.path().unwrap(), "text").unwrap();
        let refused = |error: io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        assert!(bind(&address, 0o600).is_err_and(refused));
        assert!(probe(&address).is_err_and(refused));
        assert!(address.path().unwrap().exists());
        assert!(probe(&at(&folder, "none/app.sock")).is_err());
    }

    #[test]
    fn abstract_names_have_no_file() {
        let name = format!("unix:@maglor-test-{}", std::process::id());
        let address = UnixAddress::parse(&name).unwrap().unwrap();
        assert!(probe(&address).is_ok());
        let (_socket, file) = bind(&address, 0o600).unwrap();
        assert!(file.is_none() && probe(&address).is_err());
    }
}
