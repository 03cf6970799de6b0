//! The connection to the server, encrypted or not.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What makes encrypted connections to servers whose certificate and name are right; with `roots`, those in this file
/// are trusted and no others. Without `verified` nothing is encrypted and nothing is trusted.
///
/// # Errors
/// The certificates cannot be read; a text for people.
pub(super) fn connector(verified: bool, roots: Option<&Path>) -> Result<MakeRustlsConnect, String> {
    let mut trusted = RootCertStore::empty();
    match roots {
        _ if !verified => {}
        Some(file) => {
            let wrong =
                |error: &dyn std::fmt::Display| format!("the certificates {}: {error}", file.display());
            let read = CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))?;
            for certificate in read {
                trusted.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
            }
            if trusted.is_empty() {
                return Err(wrong(&"it holds none"));
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            trusted.add_parsable_certificates(found.certs);
            if trusted.is_empty() {
                return Err(
                    "this system has no certificates to trust; name a file with sslrootcert=FILE".to_owned()
                );
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
