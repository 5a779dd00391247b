//! A caller with a transaction of its own, in which it pushes.

use anyhow::{Context, Result, anyhow};
use sickbay_core::NewMessage;
use sickbay_core::port::Pushed;
use sickbay_store::PostgresStore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_postgres::{Client, NoTls};

use super::deed::Answer;

/// What it is to do.
enum Wish {
    Push(Vec<NewMessage>),
    End { commits: bool },
}

/// What it has done.
enum Done {
    Open(Vec<Pushed>),
    Ended { committed: bool },
    Failed(String),
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Opening,
    Open,
    Ending,
}

pub(super) struct Caller {
    wishes: UnboundedSender<Wish>,
    done: UnboundedReceiver<Done>,
    state: State,
    messages: Vec<NewMessage>,
    pushed: Vec<Pushed>,
}

impl Caller {
    pub(super) async fn start(address: &str, store: PostgresStore) -> Result<Self> {
        let mut config: tokio_postgres::Config = address.parse().context("an address")?;
        config.application_name(super::CALLER);
        let (client, connection) = config.connect(NoTls).await.context("PostgreSQL")?;
        tokio::spawn(connection);
        let ((wishes, asked), (says, done)) = (unbounded_channel(), unbounded_channel());
        tokio::spawn(work(client, store, asked, says));
        Ok(Self { wishes, done, state: State::Idle, messages: Vec::new(), pushed: Vec::new() })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// True while the database works for it.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.state, State::Opening | State::Ending) && self.done.is_empty()
    }

    pub(super) fn push(&mut self, messages: Vec<NewMessage>) {
        self.messages.clone_from(&messages);
        drop(self.wishes.send(Wish::Push(messages)));
        self.state = State::Opening;
    }

    /// Ends the transaction, if one is open.
    pub(super) fn end(&mut self, commits: bool) {
        if self.state == State::Open {
            drop(self.wishes.send(Wish::End { commits }));
            self.state = State::Ending;
        }
    }

    /// What a transaction has pushed that has just been committed.
    pub(super) fn take_pushed(&mut self) -> Result<Option<Answer>> {
        match self.done.try_recv() {
            Err(_) => Ok(None),
            Ok(Done::Open(pushed)) => {
                (self.pushed, self.state) = (pushed, State::Open);
                Ok(None)
            }
            Ok(Done::Ended { committed }) => {
                self.state = State::Idle;
                let pushed = std::mem::take(&mut self.pushed);
                let messages = std::mem::take(&mut self.messages);
                Ok(committed.then_some(Answer::Pushed(messages, pushed)))
            }
            Ok(Done::Failed(error)) => Err(anyhow!("the caller is told: {error}")),
        }
    }
}

async fn work(
    mut client: Client,
    store: PostgresStore,
    mut asked: UnboundedReceiver<Wish>,
    says: UnboundedSender<Done>,
) {
    while let Some(wish) = asked.recv().await {
        let Wish::Push(messages) = wish else { continue };
        let said = match client.transaction().await {
            Err(error) => Done::Failed(error.to_string()),
            Ok(transaction) => match store.push_in(&transaction, &messages).await {
                Err(error) => Done::Failed(error.to_string()),
                Ok(pushed) => {
                    drop(says.send(Done::Open(pushed)));
                    let commits = matches!(asked.recv().await, Some(Wish::End { commits: true }));
                    let ended =
                        if commits { transaction.commit().await } else { transaction.rollback().await };
                    match ended {
                        Ok(()) => Done::Ended { committed: commits },
                        Err(error) => Done::Failed(error.to_string()),
                    }
                }
            },
        };
        drop(says.send(said));
    }
}
