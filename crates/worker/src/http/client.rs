//! The connection: which addresses are accepted, and how certificates are checked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

pub(super) type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A name that does not resolve or a host that does not answer must not cost the whole time budget.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than what servers usually wait before they close: a connection that is about to be closed
/// is better not used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why an endpoint cannot be used as it was described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEndpoint {
    problem: String,
}

impl InvalidEndpoint {
    pub(super) fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into() }
    }
}

impl fmt::Display for InvalidEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for InvalidEndpoint {}

/// Checks an address. Credentials in it would end up in every error text.
pub(super) fn endpoint(url: &str) -> Result<Uri, InvalidEndpoint> {
    let shown: String = url.chars().take(200).collect();
    let uri: Uri =
        url.parse().map_err(|error| InvalidEndpoint::new(format!("{shown:?} is no URL: {error}")))?;
    let authority = match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) => authority,
        _ => {
            let problem = format!("{shown:?} is no http:// or https:// URL");
            return Err(InvalidEndpoint::new(problem));
        }
    };
    if authority.as_str().contains('@') {
        let problem = "the URL contains credentials; send them in a header, for example Authorization";
        return Err(InvalidEndpoint::new(problem));
    }
    Ok(uri)
}

/// A client that trusts the public certificate authorities and these others, in PEM.
pub(super) fn client(more_roots_pem: Option<&[u8]>) -> Result<HttpsClient, InvalidEndpoint> {
    let told =
        |error: &dyn fmt::Display| InvalidEndpoint::new(format!("the certificates cannot be used: {error}"));
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for certificate in more_roots_pem.into_iter().flat_map(CertificateDer::pem_slice_iter) {
        let certificate = certificate.map_err(|error| told(&error))?;
        roots.add(certificate).map_err(|error| told(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| told(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let https =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(http);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .build(https))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_used_is_refused_with_the_reason() {
        let problem = |url: &str| endpoint(url).unwrap_err().to_string();
        assert!(problem("not a url").contains("is no URL"));
        assert!(problem("ftp://example.com/x").contains("is no http:// or https:// URL"));
        assert!(problem("/orders").contains("is no http:// or https:// URL"));
        let with_password = problem("https://user:hunter2@example.com/");
        assert!(with_password.contains("contains credentials") && !with_password.contains("hunter2"));
        assert!(endpoint("https://example.com:8443/orders?live=1").is_ok());
    }

    #[test]
    fn certificates_that_are_none_are_refused() {
        let bad = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(client(Some(bad)).unwrap_err().to_string().contains("the certificates cannot be used"));
        assert!(client(None).is_ok());
    }
}
