//! Payloads: text where they are text, base64 where they are not.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

/// A payload as its two fields: exactly one of them is there.
pub(crate) type Fields = (Option<String>, Option<String>);

/// What is wrong with the two fields of a payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPayload {
    /// Neither field is there.
    #[error("a message needs \"payload\" (text) or \"payload_base64\"")]
    Missing,
    /// Both fields are there.
    #[error("a message has \"payload\" or \"payload_base64\", not both")]
    Both,
    /// The second field is no base64.
    #[error("\"payload_base64\" is no base64: {0}")]
    Base64(String),
}

/// Text goes as text if it is UTF-8 without control characters but line breaks and tabs.
pub(crate) fn split(bytes: &Bytes) -> Fields {
    match std::str::from_utf8(bytes) {
        Ok(text) if is_plain(text) => (Some(text.to_owned()), None),
        _ => (None, Some(STANDARD.encode(bytes))),
    }
}

/// The same for a payload that may be missing.
pub(crate) fn split_some(bytes: Option<&Bytes>) -> Fields {
    bytes.map_or((None, None), split)
}

/// The bytes again.
pub(crate) fn join(text: Option<String>, base64: Option<String>) -> Result<Bytes, InvalidPayload> {
    join_some(text, base64)?.ok_or(InvalidPayload::Missing)
}

/// The same where neither field means no payload.
pub(crate) fn join_some(
    text: Option<String>,
    base64: Option<String>,
) -> Result<Option<Bytes>, InvalidPayload> {
    match (text, base64) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(InvalidPayload::Both),
        (Some(text), None) => Ok(Some(text.into())),
        (None, Some(base64)) => match STANDARD.decode(base64) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) => Err(InvalidPayload::Base64(error.to_string())),
        },
    }
}

fn is_plain(text: &str) -> bool {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t')) {
        return true;
    }
    text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_and_everything_comes_back_as_it_was() {
        for (bytes, is_text) in [
            (&b""[..], true),
            (b"{\"order\":7}\r\n\t", true),
            ("№7 ✓ 🦀".as_bytes(), true),
            (b"a\0b", false),
            (b"\x1b[31m", false),
            ("\u{85}".as_bytes(), false),
            (b"\xff\xfe", false),
            (b"\xed\xa0\x80", false),
        ] {
            let (text, base64) = split(&Bytes::copy_from_slice(bytes));
            assert_eq!((text.is_some(), base64.is_some()), (is_text, !is_text), "{bytes:?}");
            assert_eq!(join(text, base64).unwrap(), bytes);
        }
    }

    #[test]
    fn one_field_and_only_one_is_wanted() {
        let some = || Some("YQ==".to_owned());
        assert_eq!(join(None, None), Err(InvalidPayload::Missing));
        assert_eq!(join(some(), some()), Err(InvalidPayload::Both));
        assert!(matches!(join(None, Some("=YQ".into())), Err(InvalidPayload::Base64(_))));
        assert_eq!(join_some(None, None), Ok(None));
    }
}
