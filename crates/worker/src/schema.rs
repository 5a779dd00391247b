//! JSON Schema as a validator.

use std::fmt;

use jsonschema::error::ValidationErrorKind;
use serde_json::Value;
use sickbay_core::gate::{Invalid, Validator};
use sickbay_core::{Message, MessageType};

/// Checks the messages of one type against a JSON Schema; those of other types pass. References to
/// other places are not followed over the network.
#[derive(Debug)]
pub struct SchemaValidator {
    message_type: MessageType,
    schema: jsonschema::Validator,
}

/// A schema that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSchema {
    message_type: MessageType,
    problem: String,
}

impl fmt::Display for InvalidSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the schema of {} cannot be used: {}", self.message_type, self.problem)
    }
}

impl std::error::Error for InvalidSchema {}

impl SchemaValidator {
    /// A validator for messages of this type. The schema is given as JSON text.
    pub fn new(message_type: MessageType, schema_json: &str) -> Result<Self, InvalidSchema> {
        let refuse = |problem: String| InvalidSchema { message_type: message_type.clone(), problem };
        let schema: Value = serde_json::from_str(schema_json).map_err(|error| refuse(error.to_string()))?;
        let schema = jsonschema::validator_for(&schema).map_err(|error| refuse(error.to_string()))?;
        Ok(Self { message_type, schema })
    }
}

impl Validator for SchemaValidator {
    fn validate(&self, message: &Message) -> Result<(), Invalid> {
        if message.message_type.as_ref() != Some(&self.message_type) {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(&message.payload)
            .map_err(|error| Invalid::unreadable(format!("the body is no JSON: {error}")))?;
        let Err(error) = self.schema.validate(&body) else { return Ok(()) };
        let mut path = error.instance_path().to_string();
        if let ValidationErrorKind::Required { property } = error.kind() {
            path.push('/');
            path.push_str(property.as_str().unwrap_or_default());
        }
        // Masked: the error says what is wrong with the value and leaves the value in the message.
        Err(Invalid::new(format!("{} at {path:?}", error.masked())).at(path))
    }
}
