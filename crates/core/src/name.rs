//! Names, checked once at the door.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {shown:?} {problem}")]
pub struct InvalidName {
    what: &'static str,
    shown: String,
    problem: String,
}

fn refuse(what: &'static str, name: &str, problem: impl Into<String>) -> InvalidName {
    InvalidName { what, shown: name.chars().take(60).collect(), problem: problem.into() }
}

fn check(what: &'static str, name: &str, bytes_max: usize, plain: bool) -> Result<(), InvalidName> {
    if name.is_empty() {
        return Err(refuse(what, name, "is empty"));
    }
    if name.len() > bytes_max {
        return Err(refuse(
            what,
            name,
            format!("is {} bytes long; at most {bytes_max} are allowed", name.len()),
        ));
    }
    let bad = |c: &char| {
        if plain { !(c.is_ascii_alphanumeric() || "-_.:/".contains(*c)) } else { c.is_control() }
    };
    match name.chars().find(bad) {
        None => Ok(()),
        Some(c) if plain => {
            Err(refuse(what, name, format!("contains {c:?}; letters, digits and - _ . : / are allowed")))
        }
        Some(c) => Err(refuse(what, name, format!("contains the control character {c:?}"))),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $bytes_max:literal, $plain:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks and wraps a name.
            pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
                let name = name.as_ref();
                check($what, name, $bytes_max, $plain)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;
            fn from_str(name: &str) -> Result<Self, InvalidName> {
                Self::new(name)
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;
            fn try_from(name: String) -> Result<Self, InvalidName> {
                Self::new(name)
            }
        }

        impl TryFrom<&str> for $type {
            type Error = InvalidName;
            fn try_from(name: &str) -> Result<Self, InvalidName> {
                Self::new(name)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name!(
    /// The name of a queue: at most 100 bytes of letters, digits and `- _ . : /`.
    QueueName, "queue name", 100, true
);
name!(
    /// What kind of message it is ("OrderPaid"): at most 200 bytes of letters, digits and `- _ . : /`.
    MessageType, "message type", 200, true
);
name!(
    /// What messages of one stream share: at most 500 bytes without control characters.
    StreamKey, "stream key", 500, false
);
name!(
    /// An idempotency key: at most 500 bytes without control characters.
    Key, "idempotency key", 500, false
);
name!(
    /// Who holds a lease ("host/pid/…"): at most 200 bytes without control characters.
    WorkerName, "worker name", 200, false
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_name_is_refused_with_what_was_wrong() {
        let error = QueueName::new("orders now").unwrap_err().to_string();
        assert_eq!(
            error,
            r#"queue name "orders now" contains ' '; letters, digits and - _ . : / are allowed"#
        );
        assert!(QueueName::new("").unwrap_err().to_string().contains("is empty"));
        assert!(StreamKey::new("a\u{1b}b").unwrap_err().to_string().contains("control character"));
        assert!(QueueName::new("x".repeat(101)).unwrap_err().to_string().contains("at most 100"));
        assert!(Key::new("Bestellung №7 ✓").is_ok());
    }
}
