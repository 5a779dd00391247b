//! A PostgreSQL server of a test's own, durable, that can be crashed and started again.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Runs the server and stops it at once when our end of the pipe says so or is gone; then the folder goes too.
const SCRIPT: &str = r#"
folder=$1; shift
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
{
    read -r order || orphaned=yes
    kill -s QUIT "$server"
    if [ "$orphaned" ]; then
        while kill -0 "$server"; do sleep 0.1; done
        cd / && rm -rf "$folder"
    fi
} <&3 >/dev/null 2>&1 &
exec 3<&-
wait "$server"
"#;

/// A server in a folder of its own, on a port of the loopback interface. Dropping it stops it.
pub struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
    user: Option<(u32, u32)>,
    server: Option<Child>,
    settings: Vec<String>,
}

impl Cluster {
    /// Makes and starts a server.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is not installed or does not start.
    pub fn start() -> Self {
        Self::start_with(&[], &[])
    }

    /// The same with settings of its own (`name=value`) and files that only the server can read, beside its data;
    /// settings find those at `../name`.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is not installed or does not start.
    pub fn start_with(settings: &[&str], files: &[(&str, &[u8])]) -> Self {
        let mut cluster = Self::in_a_folder(settings);
        for (name, content) in files {
            write_secret(&cluster.folder.join(name), content, cluster.user);
        }
        let mut initdb = Command::new(cluster.programs.join("initdb"));
        initdb.arg("--pgdata").arg(cluster.data()).args([
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        let made = cluster.as_user(&mut initdb).stdout(Stdio::null()).status();
        assert!(made.is_ok_and(|status| status.success()), "initdb failed");
        cluster.restart();
        cluster
    }

    /// A standby that follows this server: `SELECT pg_promote()` lets it take over.
    ///
    /// # Panics
    ///
    /// If it cannot be copied or does not start.
    pub fn standby(&self) -> Self {
        let mut standby = Self::in_a_folder(&[]);
        let mut copy = Command::new(standby.programs.join("pg_basebackup"));
        copy.arg("--pgdata").arg(standby.data()).arg("--dbname").arg(self.address());
        copy.args(["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]);
        let made = standby.as_user(&mut copy).stdout(Stdio::null()).status();
        assert!(made.is_ok_and(|status| status.success()), "pg_basebackup failed");
        standby.restart();
        standby
    }

    /// A place for a server, with nothing in it yet.
    fn in_a_folder(settings: &[&str]) -> Self {
        let programs = programs().unwrap_or_else(|| panic!("PostgreSQL is not installed"));
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        let port = port.unwrap_or_else(|error| panic!("a port: {error}")).port();
        let folder = std::env::temp_dir().join(format!("sickbay-cluster-{}-{port}", std::process::id()));
        std::fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let user = server_user();
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid)).unwrap_or_else(|error| panic!("chown: {error}"));
        }
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Self { folder, programs, port, user, server: None, settings }
    }

    /// Whether there is a PostgreSQL to start one with.
    pub fn is_installed() -> bool {
        programs().is_some()
    }

    /// Where it is.
    pub fn address(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Stops it as a crash would: what was not committed is lost, and recovery runs at the next start.
    pub fn crash(&mut self) {
        if let Some(mut server) = self.server.take() {
            if let Some(mut pipe) = server.stdin.take() {
                let _ = pipe.write_all(b"stop\n");
            }
            let _ = server.wait();
        }
    }

    /// Starts it again on the same address, and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&mut self) {
        self.crash();
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "guard"]).arg(&self.folder).arg(self.programs.join("postgres"));
        command.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string()).arg("-k").arg(&self.folder);
        for setting in
            ["listen_addresses=127.0.0.1", "fsync=on", "synchronous_commit=on", "max_connections=50"]
        {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let server = self.as_user(&mut command).spawn();
        let mut server = server.unwrap_or_else(|error| panic!("sh: {error}"));
        let status = self.data().join("postmaster.pid");
        loop {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            if text.lines().nth(7).is_some_and(|line| ["ready", "standby"].contains(&line.trim())) {
                break;
            }
            assert!(matches!(server.try_wait(), Ok(None)), "the server ended");
            std::thread::yield_now();
        }
        self.server = Some(server);
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn as_user<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.current_dir(&self.folder);
        match self.user {
            Some((uid, gid)) => command.uid(uid).gid(gid),
            None => command,
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.crash();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A file that only its owner reads: the server refuses a key that others can read.
fn write_secret(path: &Path, content: &[u8], user: Option<(u32, u32)>) {
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(content));
    let owned = written.and_then(|()| user.map_or(Ok(()), |(uid, gid)| chown(path, Some(uid), Some(gid))));
    owned.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// The user that the package made, if we are root: the server does not run as root.
pub fn server_user() -> Option<(u32, u32)> {
    if std::fs::metadata("/proc/self").ok()?.uid() != 0 {
        return None;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.starts_with("postgres:"))?;
    let mut ids = line.split(':').skip(2).map_while(|id| id.parse().ok());
    Some((ids.next()?, ids.next()?))
}

/// The programs of the newest version installed.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path()).filter(|path| path.join("bin/initdb").is_file());
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = found.max_by_key(number).map(|path| path.join("bin"));
    newest.or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|folder: &PathBuf| Path::new(folder).join("initdb").is_file())
    })
}
