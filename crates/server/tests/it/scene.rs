//! A store in memory behind its API, called in this process.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sickbay_core::policy::RetryPolicy;
use sickbay_core::port::{Desk, Store};
use sickbay_core::{QueueName, QueuePolicy};
use sickbay_server::{Api, Client};
use sickbay_store::MemoryStore;
use sickbay_testkit::ManualClock;
use tower::ServiceExt;

pub(crate) struct Scene {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) api: Api,
    pub(crate) client: Client,
}

pub(crate) fn orders() -> QueueName {
    QueueName::new("orders").unwrap()
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

impl Scene {
    /// With the queue `orders`: three attempts, ten seconds apart.
    pub(crate) async fn new() -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
        let policy = QueuePolicy::with_retry(RetryPolicy::cooldown(3, seconds(10)));
        store.define_queue(&orders(), policy).await.unwrap();
        let api = Api::new(store.clone() as Arc<dyn Store>);
        let client = Client::in_process(&api);
        Self { clock, store, api, client }
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Body>) -> (u16, String, Value) {
        let request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
        let response = self.api.router().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, content_type, serde_json::from_slice(&body).unwrap())
    }

    /// What is answered when all is well.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let (status, _, answer) = self.send("POST", path, body.to_string()).await;
        assert_eq!(status, 200, "{answer:#}");
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, _, answer) = self.send("GET", path, "").await;
        assert_eq!(status, 200, "{answer:#}");
        answer
    }

    /// Status and code of the problem, and its detail.
    pub(crate) async fn refused(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> (u16, String, String) {
        let (status, content_type, problem) = self.send(method, path, body).await;
        assert_eq!(content_type, "application/problem+json", "{problem:#}");
        assert_eq!(problem["status"], status);
        for field in ["type", "title", "detail", "hint", "reaction"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {problem:#}");
        }
        let text = |field: &str| problem[field].as_str().unwrap().to_owned();
        (status, text("code"), text("detail"))
    }

    /// Pushes one message and answers its id.
    pub(crate) async fn push(&self, message: Value) -> String {
        let answer = self.post("/v1/push", json!({"queue": "orders", "messages": [message]})).await;
        answer["pushed"][0]["id"].as_str().unwrap().to_owned()
    }

    /// Takes up to so many deliveries.
    pub(crate) async fn receive(&self, max: u32) -> Vec<Value> {
        let answer = self.post("/v1/queues/orders/receive", json!({"max": max, "lease": "30s"})).await;
        answer["deliveries"].as_array().unwrap().clone()
    }

    /// The token of the one delivery that there is.
    pub(crate) async fn token(&self) -> Value {
        let deliveries = self.receive(2).await;
        assert_eq!(deliveries.len(), 1, "{deliveries:?}");
        deliveries[0]["token"].clone()
    }

    /// Settles one delivery and answers what became of it.
    pub(crate) async fn settle(&self, settlement: Value) -> Value {
        let answer = self.post("/v1/settle", json!({"settlements": [settlement]})).await;
        answer["settled"][0].clone()
    }

    pub(crate) fn advance(&self, count: u64) {
        self.clock.advance(seconds(count));
    }

    /// Pushes so many messages and sets each aside as poison.
    pub(crate) async fn dead(&self, count: u32) -> Vec<String> {
        let mut ids = Vec::new();
        for _ in 0..count.div_ceil(500) {
            let some = (count - ids.len() as u32).min(500);
            let messages: Vec<_> = (0..some).map(|n| json!({"payload": n.to_string()})).collect();
            let pushed = self.post("/v1/push", json!({"queue": "orders", "messages": messages})).await;
            let held = self.receive(some).await;
            let settlements: Vec<_> = held
                .iter()
                .map(|held| json!({"token": held["token"], "verdict": "dead_letter", "error": "no such customer"}))
                .collect();
            self.post("/v1/settle", json!({"settlements": settlements})).await;
            let pushed = pushed["pushed"].as_array().unwrap();
            ids.extend(pushed.iter().map(|pushed| pushed["id"].as_str().unwrap().to_owned()));
        }
        ids
    }
}
