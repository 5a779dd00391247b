//! The address of a store on PostgreSQL: `postgres://USER:PASSWORD@HOST/DATABASE?schema=NAME`. It is never shown with
//! its password.

use std::fmt;
use std::path::{Path, PathBuf};

use sickbay::{ErrorKind, PostgresOptions, StoreError};

use super::handler::Secret;

/// What such an address begins with.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// Where a store on PostgreSQL is, and how it is reached. Beside what PostgreSQL's own addresses can say it knows
/// `schema`, `sslrootcert`, `sslmode=no-verify`, `connections` and `listen`.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresAddress {
    /// As it was written.
    written: Secret,
    /// What is left for the driver.
    driver: String,
    schema: Option<String>,
    connections: Option<usize>,
    listen: bool,
    root_certificates: Option<PathBuf>,
    accept_any_certificate: bool,
}

impl PostgresAddress {
    /// True if this text means a store on PostgreSQL.
    pub fn is_one(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Reads an address. What is wrong with it is said without repeating it.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::from_secret(&Secret::plain(text))
    }

    /// The same for one that may come from the environment.
    pub(super) fn from_secret(written: &Secret) -> Result<Self, String> {
        let text = written.reveal();
        if !Self::is_one(text) {
            return Err("the address of a database begins with postgres://".to_owned());
        }
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let mut address = Self {
            driver: String::new(),
            schema: None,
            connections: None,
            listen: true,
            root_certificates: None,
            accept_any_certificate: false,
            written: written.clone(),
        };
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if let Some(pair) = address.take(pair)? {
                rest.push(pair);
            }
        }
        let has_password = user_of(place).is_some_and(|user| user.contains(':'))
            || rest.iter().any(|pair| pair.starts_with("password="));
        if let Some(password) = std::env::var("PGPASSWORD").ok().filter(|_| !has_password) {
            rest.push(format!("password={}", encode(&password)));
        }
        let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        address.driver = format!("{place}{query}");
        Ok(address)
    }

    /// Takes what is ours of the query; gives back what is the driver's.
    fn take(&mut self, pair: &str) -> Result<Option<String>, String> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match (name, value) {
            ("schema", _) => self.schema = Some(decode(value)),
            ("sslrootcert", _) => self.root_certificates = Some(PathBuf::from(decode(value))),
            ("sslmode", "no-verify") => {
                self.accept_any_certificate = true;
                return Ok(Some("sslmode=require".to_owned()));
            }
            // Whatever is encrypted is verified, so these ask for nothing more.
            ("sslmode", "verify-full" | "verify-ca") => return Ok(Some("sslmode=require".to_owned())),
            ("connections", _) => {
                let count = value.parse().ok().filter(|count| (1..=1000).contains(count));
                self.connections = Some(count.ok_or("`connections` must be between 1 and 1000")?);
            }
            ("listen", "true" | "on") => self.listen = true,
            ("listen", "false" | "off") => self.listen = false,
            ("listen", _) => return Err("`listen` must be on or off".to_owned()),
            _ => return Ok(Some(pair.to_owned())),
        }
        Ok(None)
    }

    /// The address for the driver. It holds the password.
    pub fn reveal(&self) -> &str {
        &self.driver
    }

    /// The schema that holds the store.
    pub fn schema(&self) -> &str {
        self.schema.as_deref().unwrap_or("sickbay")
    }

    /// The variable of the environment that it came from.
    pub fn variable(&self) -> Option<&str> {
        self.written.variable()
    }

    /// How to open it.
    pub fn options(&self) -> Result<PostgresOptions, StoreError> {
        let mut options = PostgresOptions::default().schema(self.schema()).listen(self.listen);
        if let Some(connections) = self.connections {
            options = options.connections(connections);
        }
        if let Some(path) = &self.root_certificates {
            options = options.root_certificates(&read(path)?)?;
        }
        Ok(options.accept_any_certificate(self.accept_any_certificate))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    std::fs::read(path).map_err(|error| {
        let text = format!("the root certificates {} cannot be read: {error}", path.display());
        StoreError::new(ErrorKind::Invalid, "SB0066", text)
    })
}

/// Without the password.
impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked(self.written.reveal()))
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An address with stars for the password, wherever it stands. Rather too much is hidden than too little.
fn masked(text: &str) -> String {
    let Some(start) = text.find("://").map(|at| at + 3) else { return "(hidden)".to_owned() };
    let (scheme, rest) = text.split_at(start);
    let rest = match rest.rfind('@') {
        Some(at) => {
            let (user, host) = rest.split_at(at);
            let user = user.split_once(':').map_or(user.to_owned(), |(name, _)| format!("{name}:***"));
            format!("{user}{host}")
        }
        None => rest.to_owned(),
    };
    let (place, query) = rest.split_once('?').unwrap_or((&rest, ""));
    let hide =
        |pair: &str| if pair.starts_with("password=") { "password=***".to_owned() } else { pair.to_owned() };
    let query: Vec<String> = query.split('&').filter(|pair| !pair.is_empty()).map(hide).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    format!("{scheme}{place}{query}")
}

fn user_of(place: &str) -> Option<&str> {
    let (_, rest) = place.split_once("://")?;
    rest.rsplit_once('@').map(|(user, _)| user)
}

fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| first == b'%');
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (written, shown) in [
            ("postgres://u:secret@h/db", "postgres://u:***@h/db"),
            ("postgres://u:se/cr@et@h:5/db?schema=x", "postgres://u:***@h:5/db?schema=x"),
            ("postgres://u:sec?ret@h/db", "postgres://u:***@h/db"),
            ("postgres://h/db?user=u&password=secret", "postgres://h/db?user=u&password=***"),
            ("postgres://u@h/db", "postgres://u@h/db"),
        ] {
            let address = PostgresAddress::parse(written).unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
        }
    }

    #[test]
    fn what_is_ours_does_not_reach_the_driver() {
        let written = "postgresql://u:p@h/db?schema=orders&connections=3&sslmode=verify-full&listen=off&application_name=a%20b";
        let address = PostgresAddress::parse(written).unwrap();
        assert_eq!(address.reveal(), "postgresql://u:p@h/db?sslmode=require&application_name=a%20b");
        assert_eq!((address.schema(), address.connections, address.listen), ("orders", Some(3), false));
    }

    #[test]
    fn what_is_wrong_with_it_is_said() {
        assert!(PostgresAddress::parse("mysql://h/db").unwrap_err().contains("postgres://"));
        assert!(PostgresAddress::parse("postgres://h/db?connections=0").unwrap_err().contains("between 1"));
        assert!(PostgresAddress::parse("postgres://h/db?listen=maybe").unwrap_err().contains("on or off"));
    }
}
