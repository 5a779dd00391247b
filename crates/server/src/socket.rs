//! The socket beside a store's file.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixListener, UnixStream};

use crate::wire::Problem;
use crate::wire::problem::Reaction;

/// The longest path that a socket address holds on every system.
const PATH_BYTES_MAX: usize = 100;

/// Where the owner of the store in this file answers.
pub fn socket_path(store: impl AsRef<Path>) -> PathBuf {
    let mut path = store.as_ref().as_os_str().to_owned();
    path.push(".sock");
    PathBuf::from(path)
}

/// A listening socket; its file goes when it does.
pub(crate) struct UnixSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl UnixSocket {
    /// Listens at this path, for this user only. A file that a dead owner left there is removed.
    pub(crate) async fn bind(path: &Path) -> Result<Self, Problem> {
        let refused = |error: io::Error| no_socket(path, &error.to_string());
        if path.symlink_metadata().is_ok() {
            if connect(path).await.is_ok() {
                return Err(no_socket(path, "another process answers there already"));
            }
            fs::remove_file(path).map_err(refused)?;
        }
        let short = Short::new(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(refused)?;
        socket.bind(&SockAddr::unix(&short.path).map_err(refused)?).map_err(refused)?;
        // Nobody can connect before it listens, so nobody gets in before the mode is set.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(refused)?;
        let inode = fs::symlink_metadata(path).map_err(refused)?.ino();
        socket.listen(1024).map_err(refused)?;
        socket.set_nonblocking(true).map_err(refused)?;
        let listener = UnixListener::from_std(socket.into()).map_err(refused)?;
        Ok(Self { listener, path: path.to_owned(), inode })
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // A later owner may have put its own there.
        let same = fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if same {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Connects to whoever listens at this path.
pub(crate) async fn connect(path: &Path) -> Result<UnixStream, Problem> {
    let short = Short::new(path)?;
    UnixStream::connect(&short.path)
        .await
        .map_err(|error| Problem::gone(format!("nobody answers at {} ({error})", path.display())))
}

fn no_socket(path: &Path, why: &str) -> Problem {
    Problem::new(
        Reaction::Conflict,
        "SB0031",
        format!("the socket {} cannot be opened: {why}", path.display()),
    )
}

/// A path that fits into a socket address: a long one is shortened by way of its open folder.
struct Short {
    path: PathBuf,
    /// Kept open as long as the path is in use.
    _folder: Option<fs::File>,
}

impl Short {
    fn new(path: &Path) -> Result<Self, Problem> {
        if path.as_os_str().as_bytes().len() <= PATH_BYTES_MAX {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let too_long = || no_socket(path, "its path is longer than a socket's may be");
        let (folder, name) = path.parent().zip(path.file_name()).ok_or_else(too_long)?;
        let folder = fs::File::open(folder).map_err(|error| no_socket(path, &error.to_string()))?;
        let open = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&folder));
        let short = Path::new(&open).join(name);
        if !Path::new(&open).exists() || short.as_os_str().as_bytes().len() > PATH_BYTES_MAX {
            return Err(too_long());
        }
        Ok(Self { path: short, _folder: Some(folder) })
    }
}
