//! Private servers for measurements: each in a folder of its own, on free ports of the loopback
//! interface, under an unprivileged user, gone when its value is dropped or this process dies.

pub(crate) mod postgres;
pub(crate) mod rabbitmq;

mod guard;
mod machine;

pub(crate) use postgres::Postgres;
pub(crate) use rabbitmq::Rabbit;
