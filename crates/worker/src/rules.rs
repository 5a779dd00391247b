//! The policy in force, with its rules compiled.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use sickbay_core::QueuePolicy;
use sickbay_core::classify::Classifier;
use sickbay_core::port::{Source, SourceError};
use sickbay_core::signature::{Grouping, Signature, Subject};

/// How many signatures are remembered.
const SIGNATURES_MAX: usize = 4096;

/// A policy and its classifier.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) policy: Arc<QueuePolicy>,
    pub(crate) classifier: Classifier,
    /// Signatures by the hash of what they were made of: failures tend to repeat themselves.
    signatures: Mutex<HashMap<u64, Signature>>,
}

impl Rules {
    /// Rules that do not compile are left out: a store refuses them before they get here.
    fn of(policy: Arc<QueuePolicy>) -> Self {
        let classifier = Classifier::new(&policy.classification).unwrap_or_default();
        Self { policy, classifier, signatures: Mutex::default() }
    }

    /// What a failure has in common with others, by the queue's own rules.
    pub(crate) fn sign(&self, subject: &Subject<'_>) -> Signature {
        let mut hasher = DefaultHasher::new();
        (subject.queue, subject.message_type, subject.reason, subject.text, subject.schema_path)
            .hash(&mut hasher);
        let key = hasher.finish();
        let known = self.signatures.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        if let Some(signature) = known {
            return signature;
        }
        let signature = Grouping::new(&self.policy.grouping).signature(subject);
        let mut signatures = self.signatures.lock().unwrap_or_else(PoisonError::into_inner);
        if signatures.len() >= SIGNATURES_MAX {
            signatures.clear();
        }
        signatures.insert(key, signature);
        signature
    }
}

/// Asks the source for its policy each time and compiles it when it is another one.
#[derive(Debug, Default)]
pub(crate) struct RulesInForce {
    known: Mutex<Arc<Rules>>,
}

impl RulesInForce {
    /// The rules in force now.
    pub(crate) async fn ask(&self, source: &dyn Source) -> Result<Arc<Rules>, SourceError> {
        let policy = source.policy().await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&known.policy, &policy) {
            *known = Arc::new(Rules::of(policy));
        }
        Ok(Arc::clone(&known))
    }

    /// The rules in force when they were last asked for.
    pub(crate) fn last(&self) -> Arc<Rules> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
