//! `sickbay policy`: what a queue does about failures, and what it would do about one.

use serde::Serialize;
use sickbay::core::decide::{Decision, Facts, Outcome, decide};
use sickbay::core::policy::{Backoff, RetryPolicy};
use sickbay::{Classifier, Counters, Kind, MessageId, MessageType, QueueName, QueuePolicy, RawError, Reason};
use sickbay_server::wire::Span;
use sickbay_server::wire::policy::Policy;

use super::Env;
use super::reach::Missing;
use crate::output::{Exit, Failure, Result, escape};

/// More attempts than this are not listed.
const STEPS_MAX: u32 = 50;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Show the policy of a queue
    Show {
        /// Which queue
        queue: QueueName,
    },
    /// Say what a queue would do about an error
    Test(Test),
}

#[derive(clap::Args)]
pub(crate) struct Test {
    /// Which queue
    queue: QueueName,
    /// The error's text
    error: String,
    /// The message's type
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<MessageType>,
    /// The exit code of the handler
    #[arg(long, value_name = "CODE", allow_negative_numbers = true)]
    exit_code: Option<i32>,
    /// The signal that ended it
    #[arg(long, value_name = "NUMBER")]
    signal: Option<i32>,
    /// The HTTP status that it answered
    #[arg(long, value_name = "STATUS")]
    http_status: Option<u16>,
    /// A code of its own, like ECONNRESET
    #[arg(long)]
    code: Option<String>,
}

#[derive(Serialize)]
struct Verdict {
    queue: QueueName,
    kind: Kind,
    reason: Reason,
    rule: Option<String>,
    rule_is_preset: bool,
    steps: Vec<Step>,
}

/// What follows one attempt.
#[derive(Serialize)]
struct Step {
    attempt: u32,
    decision: &'static str,
    after: Option<Span>,
    set_aside: Option<&'static str>,
}

impl Command {
    pub(crate) async fn run(self, env: &Env) -> Result {
        match self {
            Self::Show { queue } => {
                let policy = Policy::from(find(&queue, env).await?);
                env.out.answer(&policy, |_| {
                    let text = serde_json::to_string_pretty(&policy).unwrap_or_default();
                    format!(
                        "{queue}: {}\n{}\n",
                        describe(&policy.retry.into()),
                        crate::output::block(&text, "").trim_end()
                    )
                })?;
                Ok(Exit::Done)
            }
            Self::Test(test) => test.run(env).await,
        }
    }
}

/// The policy in force in the store, or what the configuration says if the store does not know the queue.
async fn find(queue: &QueueName, env: &Env) -> Result<QueuePolicy> {
    let configured = env.config()?.and_then(|config| config.queues.get(queue).cloned());
    let asked = match env.client(Missing::Fail).await {
        Ok(client) => client.queue(queue).await.map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    match (asked, configured) {
        (Ok(view), _) => Ok(view.policy.into()),
        (Err(failure), Some(configured)) if matches!(failure.exit, Exit::NotFound | Exit::Unreachable) => {
            env.out.say("the store does not know this queue yet; this is what the configuration says");
            Ok(configured.policy)
        }
        (Err(failure), _) => Err(failure),
    }
}

impl Test {
    async fn run(self, env: &Env) -> Result {
        let policy = find(&self.queue, env).await?;
        let classifier = Classifier::new(&policy.classification)
            .map_err(|error| Failure::new(Exit::Failed, format!("a rule of the queue is wrong: {error}")))?;
        let message_type = self.message_type.as_ref();
        let mut raw = RawError::new(&self.error);
        raw.exit_code = self.exit_code;
        raw.signal = self.signal;
        raw.http_status = self.http_status;
        raw.code = self.code.clone();
        let matched = classifier.explain(message_type, &raw);
        let failure = classifier.classify(message_type, raw);
        let verdict = Verdict {
            queue: self.queue.clone(),
            kind: failure.kind,
            reason: failure.reason,
            rule_is_preset: matched.as_ref().is_some_and(|matched| matched.preset),
            rule: matched.map(|matched| matched.rule),
            steps: steps(&policy, message_type, &failure),
        };
        env.out.answer(&verdict, |_| verdict.text())?;
        Ok(Exit::Done)
    }
}

/// What would follow if every attempt failed like this.
fn steps(policy: &QueuePolicy, message_type: Option<&MessageType>, failure: &sickbay::Failure) -> Vec<Step> {
    let mut steps = Vec::new();
    // Jitter differs from message to message; without it the steps are those that all of them have about.
    let mut policy = policy.clone();
    policy.retry.jitter = 0.0;
    policy.overrides.iter_mut().for_each(|one| one.retry.jitter = 0.0);
    let Some(id) = MessageId::from_number(1) else { return steps };
    for attempt in 1..=STEPS_MAX {
        let counters = Counters { deliveries: attempt, failures: attempt - 1, ..Counters::default() };
        let facts = Facts { id, message_type, counters };
        let (decision, after, set_aside) = match decide(&policy, facts, Outcome::Failed(failure.clone())) {
            Decision::Retry { after, .. } => ("retry", Some(Span(after)), None),
            Decision::Quarantine { set_aside, .. } => ("quarantine", None, Some(set_aside.as_str())),
            Decision::Complete | Decision::Release { .. } | Decision::Redeliver => ("redeliver", None, None),
        };
        steps.push(Step { attempt, decision, after, set_aside });
        if set_aside.is_some() {
            break;
        }
    }
    steps
}

impl Verdict {
    fn text(&self) -> String {
        let rule = match (&self.rule, self.rule_is_preset) {
            (Some(rule), true) => format!("preset {}", escape(rule)),
            (Some(rule), false) => format!("{} of the queue", escape(rule)),
            (None, _) => "none matches".to_owned(),
        };
        let mut text = format!("kind    {}\nreason  {}\nrule    {rule}\n", self.kind, self.reason);
        for step in &self.steps {
            let what = match (step.after, step.set_aside) {
                (Some(after), _) => format!("again after {after}"),
                (None, Some(set_aside)) => format!("quarantine ({set_aside})"),
                (None, None) => "delivered again".to_owned(),
            };
            text.push_str(&format!("attempt {}: {what}\n", step.attempt));
        }
        if self.steps.last().is_some_and(|step| step.set_aside.is_none()) {
            text.push_str("…\n");
        }
        text
    }
}

/// A retry policy in words.
pub(super) fn describe(retry: &RetryPolicy) -> String {
    let attempts = retry.attempts_max();
    let pause = match retry.backoff {
        _ if attempts <= 1 => return "tried once".to_owned(),
        Backoff::Cooldown(pause) => format!("{} apart", Span(pause)),
        Backoff::Exponential(base) => {
            format!("{} apart at first, doubling up to {}", Span(base), Span(retry.cap))
        }
    };
    let jitter = if retry.jitter > 0.0 { format!(", jitter {}", retry.jitter) } else { String::new() };
    format!("tried {attempts} times, {pause}{jitter}")
}
