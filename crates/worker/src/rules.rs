//! The policy in force, with its rules compiled.

use std::sync::{Arc, Mutex, PoisonError};

use sickbay_core::QueuePolicy;
use sickbay_core::classify::Classifier;
use sickbay_core::port::{Source, SourceError};

/// A policy and its classifier.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) policy: Arc<QueuePolicy>,
    pub(crate) classifier: Classifier,
}

impl Rules {
    /// Rules that do not compile are left out: a store refuses them before they get here.
    fn of(policy: Arc<QueuePolicy>) -> Self {
        let classifier = Classifier::new(&policy.classification).unwrap_or_default();
        Self { policy, classifier }
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
