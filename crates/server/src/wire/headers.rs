//! Headers as an object. Their order is kept, and names may come twice.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names and values that travel with a message. Written as an object; read as an object or as a list of
/// pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("headers: an object of texts, or a list of [name, value]")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
        let mut headers = Vec::new();
        while let Some(pair) = map.next_entry()? {
            headers.push(pair);
        }
        Ok(Headers(headers))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Headers, A::Error> {
        let mut headers = Vec::new();
        while let Some(pair) = list.next_element()? {
            headers.push(pair);
        }
        Ok(Headers(headers))
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_repeated_names_survive() {
        let headers =
            Headers(vec![("b".into(), "1".into()), ("a".into(), "\0".into()), ("b".into(), "2".into())]);
        let text = serde_json::to_string(&headers).unwrap();
        assert_eq!(text, r#"{"b":"1","a":"\u0000","b":"2"}"#);
        assert_eq!(serde_json::from_str::<Headers>(&text).unwrap(), headers);
        assert_eq!(
            serde_json::from_str::<Headers>(r#"[["b","1"],["a","\u0000"],["b","2"]]"#).unwrap(),
            headers
        );
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for text in [r#"{"a":1}"#, "3", r#"["a"]"#, r#"{"a":null}"#] {
            assert!(serde_json::from_str::<Headers>(text).is_err(), "{text}");
        }
    }
}
