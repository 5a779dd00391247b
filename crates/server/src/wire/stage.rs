//! Stages as a list of their names.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sickbay_core::Stages as Flags;

/// Finished stages, as names: `["Stored", "Application3"]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(pub Flags);

impl Stages {
    /// True if nothing is finished.
    pub fn is_none(&self) -> bool {
        self.0 == Flags::NONE
    }
}

impl Serialize for Stages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = if self.is_none() { String::new() } else { self.0.to_string() };
        serializer.collect_seq(text.split('|').filter(|name| !name.is_empty()))
    }
}

impl<'de> Deserialize<'de> for Stages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut stages = Flags::NONE;
        for name in Vec::<String>::deserialize(deserializer)? {
            let known = (0..16).map(|bit| Flags::from_bits(1 << bit)).find(|flag| flag.to_string() == name);
            let Some(flag) = known else {
                let shown: String = name.chars().take(60).collect();
                let text = format!(
                    "{shown:?} is no stage; choose Stored, EventStored, Published, Application0 to Application11, Failed"
                );
                return Err(serde::de::Error::custom(text));
            };
            stages = stages.with(flag);
        }
        Ok(Self(stages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_name_that_comes_back() {
        for bits in (0..16).map(|bit| 1 << bit).chain([0, 3, u16::MAX]) {
            let stages = Stages(Flags::from_bits(bits));
            let text = serde_json::to_string(&stages).unwrap();
            assert_eq!(serde_json::from_str::<Stages>(&text).unwrap(), stages, "{text}");
        }
        assert!(serde_json::from_str::<Stages>(r#"["Shipped"]"#).unwrap_err().to_string().contains("choose"));
    }
}
