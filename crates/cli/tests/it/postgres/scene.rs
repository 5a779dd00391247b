//! A folder and a schema to run commands in.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::command::scene::{Ran, Scene};

/// A folder to run commands in, and a database to run them on.
pub(crate) struct Base {
    pub(crate) scene: Scene,
    pub(crate) schema: String,
}

/// The address of the server, with its password.
pub(crate) fn server() -> String {
    std::env::var("SICKBAY_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("SICKBAY_TEST_POSTGRES does not say where PostgreSQL is; `cargo xtask test` starts one and says it")
    })
}

/// The password that must never be shown.
pub(crate) fn password() -> String {
    let server = server();
    let (user, _) = server.rsplit_once('@').unwrap();
    user.rsplit_once(':').unwrap().1.to_owned()
}

impl Base {
    /// Without a schema.
    pub(crate) fn bare() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { scene: Scene::new(), schema: format!("cli_{}_{number}", std::process::id()) }
    }

    /// With an empty store.
    pub(crate) fn new() -> Self {
        let base = Self::bare();
        base.ok("migrate");
        base
    }

    /// With a queue "orders" that tries twice.
    pub(crate) fn with_queue() -> Self {
        let base = Self::new();
        base.ok("queue define orders --attempts 2 --cooldown 1h");
        base
    }

    pub(crate) fn address(&self) -> String {
        format!("{}?schema={}", server(), self.schema)
    }

    fn line(&self, line: &str) -> String {
        format!("{line} --store {}", self.address())
    }

    pub(crate) fn run(&self, line: &str) -> Ran {
        let ran = self.scene.run(&self.line(line));
        assert!(
            !ran.out.contains(&password()) && !ran.err.contains(&password()),
            "{line}: {}{}",
            ran.out,
            ran.err
        );
        ran
    }

    pub(crate) fn ok(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{line}: {}{}", ran.out, ran.err);
        ran.out
    }

    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }

    pub(crate) fn until(
        &self,
        line: &str,
        is_right: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        self.scene.until(&self.line(line), is_right)
    }

    pub(crate) fn start(&self, line: &str) -> crate::command::scene::Staying {
        self.scene.start(&self.line(line))
    }

    /// Runs statements behind the store's back, as the owner of the database or as somebody else.
    pub(crate) fn sql(&self, statements: &str) -> Result<String, String> {
        self.sql_at(&server(), statements)
    }

    pub(crate) fn sql_at(&self, address: &str, statements: &str) -> Result<String, String> {
        let statements = statements.replace("sickbay.", &format!("{}.", self.schema));
        let mut psql = std::process::Command::new("psql");
        psql.arg(address).args(["-v", "ON_ERROR_STOP=1", "-qAtc", &statements]);
        let output = psql.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            drop(self.sql(&format!(
                "SET client_min_messages = error; DROP SCHEMA IF EXISTS {} CASCADE",
                self.schema
            )));
        }
    }
}
