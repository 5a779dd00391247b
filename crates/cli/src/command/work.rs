//! `sickbay work`: handlers only, beside an owner or as one.

use std::sync::Arc;

use sickbay::{Clock, QueueName, SystemClock};
use sickbay_cli::config::{Config, FILE_NAME};
use sickbay_server::{Client, RemoteStore};

use super::Env;
use super::reach::{self, Missing, Store, StoreName, owner_options};
use super::serve::{Crew, Order, Place, Told, Wish, own, share, tell_reloaded, watch};
use crate::output::{Exit, Failure, Output, Result, plural};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The queues to work on [default: all that have a handler]
    queues: Vec<QueueName>,
    /// On PostgreSQL: what this instance is called; it must be the only one of this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

pub(crate) async fn run(arguments: &Arguments, env: &Env) -> Result {
    let Some(config) = env.config()? else {
        let message = format!("there is no {FILE_NAME} that says what handles messages");
        return Err(Failure::new(Exit::NotFound, message)
            .hint("write one with `sickbay init`, or name it with --config"));
    };
    for name in &arguments.queues {
        if config.queues.get(name).is_none_or(|queue| queue.handler.is_none()) {
            let message = format!("{} has no handler for queue {name}", config.path.display());
            return Err(
                Failure::new(Exit::NotFound, message).hint("see what it says with `sickbay check --print`")
            );
        }
    }
    let only = arguments.queues.clone();
    if let Some(address) = &env.options.server {
        return visit(reach::server(address)?, config, only, &env.out).await;
    }
    let path = match env.store_name(Some(&config))? {
        StoreName::File(path) => path,
        StoreName::Database(address) => {
            let wish = Wish { listen: None, work: true, only };
            return share(&address, arguments.name.as_deref(), Some(config), &wish, &env.out).await;
        }
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    match reach::reach(&path, Missing::Make, &owner_options(clock)).await? {
        Store::Own(bay) => {
            let wish = Wish { listen: None, work: true, only };
            own(&bay, Some(&path), Some(config), &wish, &env.out).await
        }
        Store::Other(client) => visit(client, config, only, &env.out).await,
    }
}

/// Works on the store of another process.
async fn visit(client: Client, config: Config, only: Vec<QueueName>, out: &Output) -> Result {
    let mut told = Told::new()?;
    let remote = Arc::new(RemoteStore::new(client));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let place = Place { store: remote.clone(), process: remote.process(), clock, machine: String::new() };
    let mut crew = Crew::new(place, only, *out);
    let watcher = watch(config, out)?;
    crew.follow(&watcher.current()).await?;
    out.say(&format!(
        "ready: {} with handlers, on a store of another process",
        plural(crew.len() as u64, "queue")
    ));
    let mut versions = watcher.subscribe();
    loop {
        tokio::select! {
            order = told.next() => match order {
                Order::Stop => break,
                Order::Reload => tell_reloaded(&watcher, out),
            },
            Ok(()) = versions.changed() => {
                let config = watcher.current();
                match crew.follow(&config).await {
                    Ok(()) => out.say("the changed configuration is in force"),
                    Err(failure) => failure.report(&Output { json: false, ..*out }),
                }
            }
        }
    }
    out.say("stopping: what is being handled is finished first");
    crew.stop().await;
    if let Some(remote) = Arc::into_inner(remote) {
        // An owner that is gone has said goodbye first.
        drop(remote.close().await);
    }
    out.say("stopped");
    Ok(Exit::Done)
}
