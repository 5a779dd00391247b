//! What a server needs of the machine: packages, a user, ports, a password.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The user a server runs as: the package's own when we are root, else ourselves.
#[derive(Debug, Clone, Copy)]
pub(super) struct User(Option<(u32, u32)>);

impl User {
    /// Looks up the user that the package of a server made.
    pub(super) fn of_package(name: &str) -> Result<Self> {
        if fs::metadata("/proc/self")?.uid() != 0 {
            return Ok(Self(None));
        }
        let passwd = fs::read_to_string("/etc/passwd")?;
        let line = passwd.lines().find(|line| line.split(':').next() == Some(name));
        let mut fields = line.with_context(|| format!("there is no user {name}"))?.split(':').skip(2);
        let mut id = || fields.next().context("/etc/passwd is cut short")?.parse().context("/etc/passwd");
        Ok(Self(Some((id()?, id()?))))
    }

    /// Makes the user the owner of a file or folder.
    pub(super) fn own(&self, path: &Path) -> Result<()> {
        match self.0 {
            Some((uid, gid)) => chown(path, Some(uid), Some(gid)).context("chown"),
            None => Ok(()),
        }
    }

    /// Makes a command run as the user.
    pub(super) fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match self.0 {
            Some((uid, gid)) => command.uid(uid).gid(gid),
            None => command,
        }
    }
}

/// Installs a Debian package, without starting the service it brings.
pub(super) fn install(package: &str) -> Result<()> {
    eprintln!("installing {package}");
    apt_get(&["update", "-qq"])?;
    apt_get(&["install", "-y", "-qq", "--no-install-recommends", package])
        .with_context(|| format!("{package} is missing and could not be installed"))
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    // `invoke-rc.d` starts nothing in run level 1.
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    run(command.stdout(Stdio::null()))
}

/// Runs a command to its end; fails with what it printed to standard error.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output().context(program.clone())?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}: {printed}", output.status);
    Ok(())
}

/// A port of the loopback interface that nobody listens on.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Whether somebody listens on this port.
pub(super) fn is_listening(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// 32 hexadecimal digits nobody can guess.
pub(super) fn password() -> Result<String> {
    let mut bytes = [0_u8; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The first file of this name in the folders of `PATH`.
pub(super) fn in_path(name: impl AsRef<OsStr>) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name.as_ref())).find(|file| file.is_file())
}
