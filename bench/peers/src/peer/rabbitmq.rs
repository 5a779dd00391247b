//! RabbitMQ: a quorum queue, publisher confirms, one consumer that acknowledges many deliveries at once.

use std::collections::VecDeque;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer, PublisherConfirm};

use crate::args::Args;
use crate::load::{self, Drained, Latencies, Message, PRODUCER_PAUSE, Tally};

const CONFIRMS_OUTSTANDING: usize = 1000;
const PREFETCH: u16 = 1000;
const ACK_EVERY: usize = 500;
const PERSISTENT: u8 = 2;

pub(crate) fn settings() -> String {
    format!("quorum queue, prefetch {PREFETCH}, every {ACK_EVERY}th delivery acknowledges all before it")
}

pub(crate) async fn drain(args: &Args) -> Result<Drained> {
    let broker = Broker::connect(args).await?;
    let enqueue_began = load::now();
    let mut outstanding = VecDeque::with_capacity(CONFIRMS_OUTSTANDING);
    for id in 0..args.count {
        if outstanding.len() == CONFIRMS_OUTSTANDING {
            confirmed(outstanding.pop_front()).await?;
        }
        outstanding.push_back(broker.publish(id).await?);
    }
    while !outstanding.is_empty() {
        confirmed(outstanding.pop_front()).await?;
    }
    let enqueue = enqueue_began.elapsed();

    let tally = Tally::new(args.count);
    let began = load::now();
    let mut consumer = broker.consume().await?;
    let mut unacknowledged = 0;
    loop {
        let delivery = consumer.next().await.context("the consumer ended")??;
        let message: Message = serde_json::from_slice(&delivery.data)?;
        let last = tally.handled(message.id);
        unacknowledged += 1;
        if last || unacknowledged == ACK_EVERY {
            delivery.ack(BasicAckOptions { multiple: true }).await?;
            unacknowledged = 0;
        }
        if last {
            break;
        }
    }
    let drain = began.elapsed();
    let handled = tally.finished_at().await? - began;
    broker.close().await?;
    Ok(Drained { count: args.count, enqueue, handled, drain })
}

pub(crate) async fn latency(args: &Args) -> Result<Latencies> {
    let broker = Broker::connect(args).await?;
    let count = load::latency_count(args.duration);
    let tally = Tally::new(count);
    let mut consumer = broker.consume().await?;
    let consuming = tokio::spawn({
        let tally = std::sync::Arc::clone(&tally);
        async move {
            while let Some(delivery) = consumer.next().await {
                let started_at = load::now();
                let delivery = delivery?;
                let message: Message = serde_json::from_slice(&delivery.data)?;
                tally.started(message.id, started_at);
                delivery.ack(BasicAckOptions::default()).await?;
            }
            anyhow::Ok(())
        }
    });
    for id in 0..count {
        tally.sending(id);
        confirmed(Some(broker.publish(id).await?)).await?;
        load::pause(PRODUCER_PAUSE).await;
    }
    let latencies = tally.latencies().await;
    consuming.abort();
    broker.close().await?;
    Ok(latencies)
}

async fn confirmed(confirm: Option<PublisherConfirm>) -> Result<()> {
    let confirmation = confirm.context("nothing to confirm")?.await?;
    ensure!(confirmation.is_ack(), "the broker refused a message");
    Ok(())
}

/// One connection to publish and one to consume, as publishers and workers are apart in earnest.
struct Broker {
    publishing: Connection,
    publisher: Channel,
    consuming: Connection,
    worker: Channel,
    queue: String,
}

impl Broker {
    async fn connect(args: &Args) -> Result<Self> {
        let address = args.amqp.as_deref().context("--amqp is missing")?;
        let publishing = Connection::connect(address, ConnectionProperties::default()).await?;
        let publisher = publishing.create_channel().await?;
        publisher.confirm_select(ConfirmSelectOptions::default()).await?;
        let consuming = Connection::connect(address, ConnectionProperties::default()).await?;
        let worker = consuming.create_channel().await?;
        worker.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let broker =
            Self { publishing, publisher, consuming, worker, queue: format!("peers-{}", std::process::id()) };
        broker.declare().await?;
        Ok(broker)
    }

    async fn declare(&self) -> Result<()> {
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.publisher.queue_declare(self.queue.as_str().into(), options, arguments).await?;
        Ok(())
    }

    async fn publish(&self, id: usize) -> Result<PublisherConfirm> {
        let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
        let options = BasicPublishOptions::default();
        let payload = Message::new(id).to_json();
        Ok(self
            .publisher
            .basic_publish("".into(), self.queue.as_str().into(), options, &payload, properties)
            .await?)
    }

    async fn consume(&self) -> Result<Consumer> {
        let options = BasicConsumeOptions::default();
        let name = self.queue.as_str().into();
        Ok(self.worker.basic_consume(name, "worker".into(), options, FieldTable::default()).await?)
    }

    async fn close(self) -> Result<()> {
        self.consuming.close(200, "done".into()).await?;
        self.publisher.queue_delete(self.queue.as_str().into(), QueueDeleteOptions::default()).await?;
        self.publishing.close(200, "done".into()).await?;
        Ok(())
    }
}
