//! A server process that cannot outlive its owner.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::machine::User;

/// How long a server may take until it answers.
const START_MAX: Duration = Duration::from_secs(60);

/// Runs the server (`$3…`) and waits for it. A second process reads our pipe: a line or its end means
/// "stop now"; the end without a line means that the owner died, so the folder goes too.
const SCRIPT: &str = r#"
signal=$1; folder=$2; shift 2
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
{
    read -r order || orphaned=yes
    kill -s "$signal" "$server"
    if [ "$orphaned" ]; then
        while kill -0 "$server"; do sleep 0.1; done
        cd / && rm -rf "$folder"
    fi
} <&3 >/dev/null 2>&1 &
exec 3<&-
wait "$server"
"#;

/// A folder for a server's files, owned by the server's user and removed on drop.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Creates a folder below the system's folder for temporary files.
    pub(super) fn create(kind: &str, user: &User) -> Result<Self> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sickbay-{kind}-{}-{serial}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        let folder = Self(path);
        user.own(&folder.0)?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file that only the server's user can read.
    pub(super) fn write(&self, name: &str, text: &str, user: &User) -> Result<PathBuf> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.0.join(name);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        user.own(&path)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running server. Dropping it stops the server.
#[derive(Debug)]
pub(super) struct Guard {
    script: Child,
    log: PathBuf,
}

impl Guard {
    /// Starts `server` as `user`, to be stopped by `signal`; what it prints goes to a log in `folder`.
    pub(super) fn start(server: &Command, signal: &str, folder: &Folder, user: &User) -> Result<Self> {
        let log = folder.path().join("log");
        let output = fs::OpenOptions::new().create(true).append(true).open(&log)?;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "guard", signal]).arg(folder.path());
        command.arg(server.get_program()).args(server.get_args());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(server.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(folder.path()).stdin(Stdio::piped());
        command.stdout(output.try_clone()?).stderr(output);
        // A group of its own, so that an interrupt from the keyboard reaches us alone and ends the pipe.
        user.apply(&mut command).process_group(0);
        let script = command.spawn().context("sh")?;
        Ok(Self { script, log })
    }

    /// Waits until `ready` says so; fails when the server ends before or takes too long.
    #[expect(clippy::disallowed_methods, reason = "a server is ready when it is; nobody tells us")]
    pub(super) fn wait_until(&mut self, mut ready: impl FnMut() -> bool) -> Result<()> {
        let began = Instant::now();
        while !ready() {
            if self.script.try_wait()?.is_some() {
                bail!("the server ended:\n{}", self.log_tail());
            }
            if began.elapsed() > START_MAX {
                bail!("the server did not get ready:\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(4000)..]).into_owned()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.script.stdin.take() {
            let _ = pipe.write_all(b"stop\n");
        }
        let _ = self.script.wait();
    }
}
