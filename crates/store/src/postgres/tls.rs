//! Encrypted connections: verified unless someone says otherwise in so many words.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sickbay_core::{ErrorKind, StoreError};
use tokio_postgres::config::{Config, Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::PostgresOptions;

/// Decides on encryption where the address does not: none on this machine, always elsewhere.
pub(super) fn choose_mode(config: &mut Config) {
    if config.get_ssl_mode() == SslMode::Prefer {
        let here = |host: &Host| match host {
            Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
            #[cfg(unix)]
            Host::Unix(_) => true,
        };
        let local = config.get_hosts().iter().all(here);
        config.ssl_mode(if local { SslMode::Disable } else { SslMode::Require });
    }
}

pub(super) fn connector(options: &PostgresOptions) -> Result<MakeRustlsConnect, StoreError> {
    let wrong = |error: String| StoreError::new(ErrorKind::Invalid, "SB0066", error);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| wrong(error.to_string()))?;
    if options.insecure {
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)));
        return Ok(MakeRustlsConnect::new(builder.with_no_client_auth()));
    }
    let mut roots = RootCertStore::empty();
    for root in &options.roots {
        roots.add(root.clone()).map_err(|error| wrong(format!("a root certificate is wrong: {error}")))?;
    }
    if options.roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(MakeRustlsConnect::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// Believes every certificate.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(address: &str) -> SslMode {
        let mut config: Config = address.parse().unwrap();
        choose_mode(&mut config);
        config.get_ssl_mode()
    }

    #[test]
    fn what_leaves_the_machine_is_encrypted_unless_the_address_says_otherwise() {
        assert_eq!(mode("postgres://db.example.com/app"), SslMode::Require);
        assert_eq!(mode("postgres://db.example.com/app?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("postgres://127.0.0.1/app"), SslMode::Disable);
        assert_eq!(mode("postgres://127.0.0.1/app?sslmode=require"), SslMode::Require);
        assert_eq!(mode("host=127.0.0.1,db.example.com"), SslMode::Require);
    }
}
