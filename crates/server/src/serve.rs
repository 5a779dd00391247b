//! How the owner answers: on the socket beside the file, and on loopback TCP when asked.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;

use axum::Router;
use axum::body::Body;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Request};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt;

use crate::api::Api;
use crate::socket::UnixSocket;
use crate::wire::Problem;
use crate::wire::problem::Reaction;

/// Where requests come in.
pub struct Listener(Kind);

enum Kind {
    Unix(UnixSocket),
    Tcp(TcpListener),
}

impl Listener {
    /// A socket at this path, for this user only; see [`socket_path`](crate::socket_path).
    pub async fn unix(path: impl AsRef<Path>) -> Result<Self, Problem> {
        UnixSocket::bind(path.as_ref()).await.map(|socket| Self(Kind::Unix(socket)))
    }

    /// A port of this machine. Other addresses are refused: there is no access control on them.
    pub async fn tcp(address: SocketAddr) -> Result<Self, Problem> {
        if !address.ip().is_loopback() {
            let detail =
                format!("{address} can be reached from other machines, and nobody would be asked who he is");
            let hint = "listen on 127.0.0.1 or [::1]";
            return Err(Problem::new(Reaction::Invalid, "SB0030", detail).hint(hint));
        }
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Problem::new(Reaction::Conflict, "SB0031", format!("{address} cannot be opened: {error}"))
        })?;
        Ok(Self(Kind::Tcp(listener)))
    }

    /// The address, if it is a port.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Kind::Unix(_) => None,
            Kind::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    async fn accept(&self) -> io::Result<Stream> {
        match &self.0 {
            Kind::Unix(socket) => socket.listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            Kind::Tcp(listener) => listener.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// An API that is being served. Dropping it ends that at once.
pub struct Serving {
    api: Api,
    ending: watch::Sender<Ending>,
    task: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    NotYet,
    /// What was asked is answered.
    Stop,
    /// Nothing is.
    Cut,
}

impl Serving {
    /// Takes no more requests, lets nobody wait any longer, and returns when all are answered.
    pub async fn stop(self) {
        self.end(Ending::Stop).await;
    }

    /// Cuts everything off, as the death of the process would.
    pub async fn abort(self) {
        self.end(Ending::Cut).await;
    }

    async fn end(mut self, ending: Ending) {
        self.api.close();
        self.ending.send_replace(ending);
        if let Some(task) = self.task.take() {
            drop(task.await);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Serves the API to everybody who comes by this listener. Needs a runtime with I/O.
pub fn serve(api: &Api, listener: Listener) -> Serving {
    let (ending, ended) = watch::channel(Ending::NotYet);
    let task = tokio::spawn(accept_all(listener, api.router(), ended));
    Serving { api: api.clone(), ending, task: Some(task) }
}

async fn accept_all(listener: Listener, router: Router, mut ended: watch::Receiver<Ending>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = ended.wait_for(|ending| *ending != Ending::NotYet) => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (router, ended) = (router.clone(), ended.clone());
        match accepted {
            Ok(Stream::Unix(stream)) => drop(connections.spawn(attend(stream, router, ended, false))),
            Ok(Stream::Tcp(stream)) => {
                // Answers are written in one piece; there is nothing to wait for.
                drop(stream.set_nodelay(true));
                connections.spawn(attend(stream, router, ended, true));
            }
            // Too many open files, most likely: when a connection ends there is room again.
            Err(_) => drop(connections.join_next().await),
        }
    }
    drop(listener);
    if *ended.borrow() == Ending::Cut {
        return connections.shutdown().await;
    }
    while connections.join_next().await.is_some() {}
}

/// Answers one connection until it ends. A request whose caller goes away is dropped.
async fn attend<S>(stream: S, router: Router, mut ended: watch::Receiver<Ending>, guarded: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| answer(router.clone(), request, guarded));
    let mut connection = pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = ended.wait_for(|ending| *ending != Ending::NotYet) => connection.as_mut().graceful_shutdown(),
    }
    drop(connection.await);
}

async fn answer(router: Router, request: Request<Incoming>, guarded: bool) -> Result<Response, Infallible> {
    if guarded && let Err(problem) = from_here(request.headers()) {
        return Ok(problem.into_response());
    }
    router.oneshot(request.map(Body::new)).await
}

/// Refuses what a web page of another site makes a browser send to a port of this machine.
fn from_here(headers: &HeaderMap) -> Result<(), Problem> {
    for name in [HOST, ORIGIN] {
        let Some(value) = headers.get(&name) else { continue };
        let text = value.to_str().unwrap_or_default();
        if !is_local(text.split_once("://").map_or(text, |(_, host)| host)) {
            let shown: String = text.chars().take(100).collect();
            let detail = format!("its {name} is {shown:?}, which is not this machine");
            return Err(Problem::new(Reaction::Invalid, "SB0033", detail).status(403));
        }
    }
    Ok(())
}

fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let ip = name.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:7070", "127.9.9.9", "[::1]:80", "[::1]"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["", "evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "null", "localhost.evil:1"]
        {
            assert!(!is_local(host), "{host}");
        }
    }
}
