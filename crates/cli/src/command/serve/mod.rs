//! `sickbay serve`: owns the store, answers others, runs handlers, follows the configuration.

mod crew;
mod handler;
mod retention;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use sickbay::{Clock, QueueName, Sickbay, SystemClock};
use sickbay_cli::config::{Config, ConfigWatcher, Paint, PostgresAddress, Reloaded};
use sickbay_server::{Api, Listener, Serving, serve, socket_path};
use tokio::signal::unix::{SignalKind, signal};

pub(super) use self::crew::{Crew, Place};
use super::Env;
use super::database;
use super::reach::{Missing, Store, StoreName, owner_options, reach};
use crate::output::{Exit, Failure, Output, Result, plural};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Answer on this address of this machine too, like 127.0.0.1:7070
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Run no handlers
    #[arg(long)]
    no_work: bool,
    /// On PostgreSQL: what this instance is called; it must be the only one of this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

pub(crate) async fn run(arguments: &Arguments, env: &Env) -> Result {
    let config = env.config()?;
    let wish = Wish { listen: arguments.listen, work: !arguments.no_work, only: Vec::new() };
    let path = match env.store_name(config.as_ref())? {
        StoreName::File(path) => path,
        StoreName::Database(address) => {
            return share(&address, arguments.name.as_deref(), config, &wish, &env.out).await;
        }
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let bay = match reach(&path, Missing::Make, &owner_options(clock)).await? {
        Store::Own(bay) => bay,
        Store::Other(_) => {
            let message = format!("{} is served already by another process", path.display());
            let hint = "see it with `sickbay doctor`; run more handlers beside it with `sickbay work`";
            return Err(Failure::new(Exit::Refused, message).hint(hint));
        }
    };
    own(&bay, Some(&path), config, &wish, &env.out).await
}

/// Works on a database beside others.
pub(super) async fn share(
    address: &PostgresAddress,
    name: Option<&str>,
    config: Option<Config>,
    wish: &Wish,
    out: &Output,
) -> Result {
    let store = database::stay(address, name).await?;
    out.say(&format!("{address} is open"));
    let exit = own(&Sickbay::from(store.clone()), None, config, wish, out).await;
    // What is left behind is swept by others.
    drop(store.close().await);
    exit
}

/// What an owner is to do.
pub(super) struct Wish {
    pub(super) listen: Option<SocketAddr>,
    pub(super) work: bool,
    /// Run the handlers of these queues only; of all if there is none.
    pub(super) only: Vec<QueueName>,
}

/// Serves and works until it is told to stop. A file is served at the socket beside it.
pub(super) async fn own(
    bay: &Sickbay,
    path: Option<&Path>,
    config: Option<Config>,
    wish: &Wish,
    out: &Output,
) -> Result {
    let mut told = Told::new()?;
    if let Some(config) = &config {
        define(bay, config).await?;
    }
    let api = Api::new(bay.store().clone());
    let servings = listen(&api, path, wish.listen, out).await?;
    let watcher = config.map(|config| watch(config, out)).transpose()?;
    let place =
        Place::here(bay, if path.is_some() { String::new() } else { format!("{}/", database::host()) });
    let mut crew = Crew::new(place, wish.only.clone(), *out);
    if wish.work
        && let Some(watcher) = &watcher
    {
        crew.follow(&watcher.current()).await?;
    }
    let handled = crew.len() as u64;
    out.say(&format!("ready: {} with handlers", plural(handled, "queue")));
    let mut versions = watcher.as_ref().map(ConfigWatcher::subscribe);
    let mut cleaning = tokio::time::interval(retention::EVERY);
    loop {
        let changed = async {
            match &mut versions {
                Some(versions) => versions.changed().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            order = told.next() => match (order, &watcher) {
                (Order::Stop, _) => break,
                (Order::Reload, Some(watcher)) => tell_reloaded(watcher, out),
                (Order::Reload, None) => out.say("there is no configuration to reload"),
            },
            _ = cleaning.tick() => {
                let Some(watcher) = &watcher else { continue };
                if let Err(failure) = retention::enforce(bay, &watcher.current(), out).await {
                    out.say(&format!("retention: {failure}; tried again in a minute"));
                }
            }
            true = changed => {
                let Some(watcher) = &watcher else { continue };
                cleaning.reset_immediately();
                let config = watcher.current();
                let taken = take_over(bay, &config, wish.work.then_some(&mut crew)).await;
                match taken {
                    Ok(()) => out.say("the changed configuration is in force"),
                    Err(failure) => failure.report(&Output { json: false, ..*out }),
                }
            }
        }
    }
    out.say("stopping: what is being handled is finished first");
    crew.stop().await;
    for serving in servings {
        serving.stop().await;
    }
    out.say("stopped");
    Ok(Exit::Done)
}

async fn take_over(bay: &Sickbay, config: &Config, crew: Option<&mut Crew>) -> Result<()> {
    define(bay, config).await?;
    match crew {
        Some(crew) => crew.follow(config).await,
        None => Ok(()),
    }
}

/// Puts the policies of the configuration in force.
async fn define(bay: &Sickbay, config: &Config) -> Result<()> {
    for (name, queue) in &config.queues {
        bay.define_queue(name, queue.policy.clone()).await?;
    }
    Ok(())
}

async fn listen(
    api: &Api,
    path: Option<&Path>,
    address: Option<SocketAddr>,
    out: &Output,
) -> Result<Vec<Serving>> {
    let mut servings = Vec::new();
    if let Some(path) = path {
        let socket = socket_path(path);
        servings.push(serve(api, Listener::unix(&socket).await?));
        out.say(&format!("{} is served at {}", path.display(), socket.display()));
    }
    if let Some(address) = address {
        let listener = Listener::tcp(address).await?;
        // The port is the machine's choice if 0 was asked for.
        let served = if path.is_some() { "and at" } else { "it is served at" };
        out.say(&format!("{served} http://{}", listener.address().unwrap_or(address)));
        servings.push(serve(api, listener));
    }
    Ok(servings)
}

pub(super) fn watch(config: Config, out: &Output) -> Result<ConfigWatcher> {
    let paint = if out.colour_errors { Paint::Colour } else { Paint::Plain };
    let told = *out;
    let watcher = ConfigWatcher::start(config, move |errors| {
        told.say(&format!(
            "{}\nthe changed configuration is broken; the old one stays in force",
            errors.render(paint).trim_end()
        ));
    });
    watcher
        .map_err(|error| Failure::new(Exit::Failed, format!("the configuration cannot be watched: {error}")))
}

pub(super) fn tell_reloaded(watcher: &ConfigWatcher, out: &Output) {
    // A new version is told of when it is in force, a broken one when it is found.
    if watcher.reload() == Reloaded::Same {
        out.say("the configuration is the same");
    }
}

/// What a running process is told from outside.
pub(super) enum Order {
    Stop,
    Reload,
}

/// Listens to signals.
pub(super) struct Told {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Told {
    pub(super) fn new() -> Result<Self> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(Exit::Failed, format!("signals cannot be heard: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Order {
        tokio::select! {
            _ = self.interrupt.recv() => Order::Stop,
            _ = self.terminate.recv() => Order::Stop,
            _ = self.hang_up.recv() => Order::Reload,
        }
    }
}
