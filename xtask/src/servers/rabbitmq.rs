//! A private RabbitMQ broker, with a port mapper (epmd) of its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::guard::{Folder, Guard};
use super::machine::{self, User};

const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// A RabbitMQ broker of our own. Dropping it stops the broker and removes its files.
#[derive(Debug)]
pub(crate) struct Rabbit {
    /// The address of the default virtual host, with user and password.
    pub(crate) url: String,
    // Dropped in this order: broker, port mapper, files.
    _broker: Guard,
    _mapper: Guard,
    #[cfg(test)]
    port: u16,
    _folder: Folder,
}

impl Rabbit {
    /// Installs RabbitMQ if it is missing and starts a broker in a temporary folder.
    pub(crate) fn start() -> Result<Self> {
        if !Path::new(SERVER).exists() {
            machine::install("rabbitmq-server")?;
        }
        let user = User::of_package("rabbitmq")?;
        let folder = Folder::create("rabbitmq", &user)?;
        let ports = Ports {
            amqp: machine::free_port()?,
            mapper: machine::free_port()?,
            peers: machine::free_port()?,
        };
        let password = machine::password()?;
        let config = format!("default_user = sickbay\ndefault_pass = {password}\nlog.file = false\n");
        folder.write("rabbitmq.conf", &config, &user)?;
        folder.write("enabled_plugins", "[].\n", &user)?;
        folder.write("log", "", &user)?;

        let epmd = machine::in_path("epmd").context("RabbitMQ came without epmd")?;
        let mut epmd = Command::new(epmd);
        epmd.arg("-port").arg(ports.mapper.to_string()).args(["-address", "127.0.0.1"]);
        let mut mapper = Guard::start(&epmd, "KILL", &folder, &user)?;
        mapper.wait_until(|| machine::is_listening(ports.mapper))?;

        let mut broker = Guard::start(&command(folder.path(), &ports), "KILL", &folder, &user)?;
        broker.wait_until(|| machine::is_listening(ports.amqp))?;
        Ok(Self {
            url: format!("amqp://sickbay:{password}@127.0.0.1:{}/%2f", ports.amqp),
            _broker: broker,
            _mapper: mapper,
            #[cfg(test)]
            port: ports.amqp,
            _folder: folder,
        })
    }
}

/// The ports of one broker, all on the loopback interface.
struct Ports {
    amqp: u16,
    mapper: u16,
    peers: u16,
}

fn command(folder: &Path, ports: &Ports) -> Command {
    let mut server = Command::new(SERVER);
    // Nothing is read from or written to the places that the package's own service uses.
    server
        .env("HOME", folder)
        .env("RABBITMQ_CONF_ENV_FILE", folder.join("none"))
        .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"))
        .env("RABBITMQ_ADVANCED_CONFIG_FILE", folder.join("none"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("enabled_plugins"))
        .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", folder)
        .env("RABBITMQ_PID_FILE", folder.join("pid"))
        .env("RABBITMQ_NODENAME", format!("sickbay-{}@localhost", ports.amqp))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", ports.amqp.to_string())
        .env("RABBITMQ_DIST_PORT", ports.peers.to_string())
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}")
        .env("ERL_EPMD_PORT", ports.mapper.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        // The start script then becomes the broker instead of its parent, so that one signal ends it.
        .env("RUNNING_UNDER_SYSTEMD", "true");
    server
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_answers_on_its_port_and_is_gone_when_dropped() {
        let rabbit = Rabbit::start().expect("RabbitMQ starts");
        let (port, folder) = (rabbit.port, rabbit._folder.path().to_owned());
        assert!(rabbit.url.starts_with("amqp://sickbay:"));
        drop(rabbit);
        assert!(!machine::is_listening(port));
        assert!(!folder.exists());
    }
}
