//! `sickbay migrate`: makes the schema of a store on PostgreSQL, or brings it to this version.

use serde::Serialize;
use sickbay::{PostgresStore, StoreError};
use sickbay_cli::config::PostgresAddress;

use super::reach::StoreName;
use super::{Env, database};
use crate::output::{Exit, Failure, Result};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print the statements instead of running them
    #[arg(long)]
    dry_run: bool,
    /// Let this role use the store; it cannot change the schema or what was recorded
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
}

#[derive(Serialize)]
struct Answer {
    store: String,
    schema: String,
    /// The version it had before; none if it was not there.
    from: Option<i64>,
    to: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sql: Option<String>,
}

pub(crate) async fn run(arguments: &Arguments, env: &Env) -> Result {
    if env.options.server.is_some() {
        return Err(Failure::usage("a store is migrated where it is, not through a server")
            .hint("name it with --store"));
    }
    let wanted = env.options.store.is_none() || env.options.config.is_some();
    let config = if wanted { env.config()? } else { None };
    match env.store_name(config.as_ref())? {
        StoreName::Database(address) => migrate(&address, arguments, env).await,
        StoreName::File(path) if arguments.role.is_some() => {
            let message = format!("{} is a file: it has no roles", path.display());
            Err(Failure::usage(message).hint("name a database with --store postgres://…"))
        }
        StoreName::File(path) => {
            env.out.say(&format!(
                "{} is a file: opening it migrates it, there is nothing to do",
                path.display()
            ));
            // There is nothing to print, but a program expects a document.
            env.out.answer(&serde_json::json!({ "store": path }), |_| String::new())?;
            Ok(Exit::Done)
        }
    }
}

async fn migrate(address: &PostgresAddress, arguments: &Arguments, env: &Env) -> Result {
    let failed = |error: StoreError| database::failure(address, &error);
    let options = database::options(address)?.connections(1);
    let seen = PostgresStore::examine(address.reveal(), &options).await.map_err(failed)?;
    let (from, to) = (seen.schema_version, seen.schema_version_needed);
    let mut sql = PostgresStore::migration_sql(address.reveal(), &options).await.map_err(failed)?;
    if let Some(role) = &arguments.role {
        sql.push_str(&PostgresStore::grant_sql(address.schema(), role).map_err(failed)?);
    }
    if !arguments.dry_run {
        PostgresStore::migrate(address.reveal(), &options).await.map_err(failed)?;
        if let Some(role) = &arguments.role {
            PostgresStore::grant(address.reveal(), &options, role).await.map_err(failed)?;
        }
    }
    let answer = Answer {
        store: address.to_string(),
        schema: address.schema().to_owned(),
        from,
        to,
        role: arguments.role.clone(),
        sql: arguments.dry_run.then_some(sql),
    };
    env.out.answer(&answer, |_| answer.text())?;
    Ok(Exit::Done)
}

impl Answer {
    fn text(&self) -> String {
        if let Some(sql) = &self.sql {
            // What runs it decides where the transaction ends.
            return format!("BEGIN;\n{sql}COMMIT;\n");
        }
        let Self { schema, from, to, .. } = self;
        let done = match from {
            None => format!("schema {schema} is made, version {to}\n"),
            Some(from) if from == to => {
                format!("schema {schema} has version {to} already; its functions are renewed\n")
            }
            Some(from) => format!("schema {schema} is brought from version {from} to {to}\n"),
        };
        let role = self.role.as_ref().map(|role| format!("{role} may use it\n")).unwrap_or_default();
        format!("{done}{role}")
    }
}
