//! One connection to the owner.

use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::{Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use socket2::Socket;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::Answered;
use crate::wire::Problem;

/// Where the owner answers.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Unix(PathBuf),
    /// Host and port.
    Tcp(String),
}

impl Target {
    /// From an address like `http://127.0.0.1:7070`.
    pub(crate) fn tcp(address: &str) -> Result<Self, Problem> {
        let rest = address.trim_end_matches('/').strip_prefix("http://");
        let authority = rest.and_then(|rest| rest.parse::<axum::http::uri::Authority>().ok());
        match authority.filter(|authority| authority.port().is_some()) {
            Some(authority) => Ok(Self::Tcp(authority.to_string())),
            None => {
                let shown: String = address.chars().take(100).collect();
                let detail = format!("{shown:?} is no address; write http://127.0.0.1:7070");
                Err(crate::extract::wrong_address("the server", detail))
            }
        }
    }

    /// What requests name as their host.
    pub(crate) fn host(&self) -> &str {
        match self {
            Self::Unix(_) => "localhost",
            Self::Tcp(authority) => authority,
        }
    }

    /// Connects; must run inside the runtime that is to serve the connection.
    pub(crate) async fn connect(&self) -> Result<Connection, Problem> {
        match self {
            Self::Unix(path) => Connection::over(crate::socket::connect(path).await?).await,
            Self::Tcp(authority) => {
                let stream = TcpStream::connect(authority).await;
                let stream = stream
                    .map_err(|error| Problem::gone(format!("nobody answers at {authority} ({error})")))?;
                drop(stream.set_nodelay(true));
                Connection::over(stream).await
            }
        }
    }
}

/// An open connection.
pub(crate) struct Connection {
    send: SendRequest<Full<Bytes>>,
    /// The same socket once more, to look at it and to shut it beside the protocol.
    socket: Arc<Socket>,
}

/// Why a request has no answer.
pub(crate) enum Unanswered {
    /// It never left; here it is again.
    NotSent(Box<Request<Full<Bytes>>>),
    /// It may have been carried out or not.
    Lost(Problem),
}

impl Connection {
    async fn over<S>(stream: S) -> Result<Self, Problem>
    where
        S: AsFd + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let socket = stream.as_fd().try_clone_to_owned().map_err(Problem::gone)?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (send, connection) = handshake.map_err(Problem::gone)?;
        tokio::spawn(connection);
        Ok(Self { send, socket: Arc::new(Socket::from(socket)) })
    }

    /// True if the other side has not hung up.
    pub(crate) fn is_open(&self) -> bool {
        if self.send.is_closed() {
            return false;
        }
        let mut byte = [MaybeUninit::uninit()];
        matches!(self.socket.peek(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// What shuts the connection for requests while answers can still come.
    pub(crate) fn hang_up(&self) -> impl FnOnce() + Send + use<> {
        let socket = Arc::clone(&self.socket);
        move || drop(socket.shutdown(Shutdown::Write))
    }

    /// Sends a request and waits for the beginning of its answer.
    pub(crate) async fn begin(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unanswered> {
        if self.send.ready().await.is_err() {
            return Err(Unanswered::NotSent(Box::new(request)));
        }
        self.send.try_send_request(request).await.map_err(|mut failure| match failure.take_message() {
            Some(request) => Unanswered::NotSent(Box::new(request)),
            None => Unanswered::Lost(Problem::gone(failure.into_error())),
        })
    }

    /// Sends a request and waits for its whole answer.
    pub(crate) async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<Answered, Unanswered> {
        let response = self.begin(request).await?;
        let status = response.status();
        match response.into_body().collect().await {
            Ok(body) => Ok(Answered { status, body: body.to_bytes() }),
            Err(error) => Err(Unanswered::Lost(Problem::gone(error))),
        }
    }
}
