//! Who is let in, by which way, and what of it is shown.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use offspring_sessions::store::{
    SessionStore, StoreError,
    postgres::{PostgresAddress, PostgresOptions, PostgresStore},
};

use crate::{open, own_server, place, server::Stop};

fn secret(url: &str) -> String {
    url.split(['/', ':', '@']).nth(4).unwrap().to_owned()
}

async fn refused(address: &PostgresAddress) -> StoreError {
    let options = PostgresOptions { patience: Duration::from_secs(5), ..PostgresOptions::default() };
    PostgresStore::open(address, options).await.unwrap_err()
}

#[tokio::test]
async fn a_password_is_in_no_error_and_in_nothing_that_is_printed() {
    let Some(url) = place::server("password_not_shown") else { return };
    let secret = secret(&url);
    let address = place::fresh(&url);
    let store = open(&address).await;
    let mut shown = format!("{store:?} {} {:?} {address} {address:?}", store.info(), store.info());
    for wrong in [
        url.replace(&secret, &format!("{secret}x")),
        url.replace("/postgres?", "/nowhere?").replace("/postgres", "/nowhere"),
        url.replace("offspring:", "nobody:"),
    ] {
        let error = refused(&wrong.parse().unwrap()).await;
        assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
        shown.push_str(&format!("{error} {error:?}"));
    }
    assert!(secret.len() >= 8 && !shown.contains(&secret), "{shown}");
    assert!(shown.contains("PGPASSFILE") && shown.contains("createdb"), "{shown}");
}

#[tokio::test]
async fn a_password_comes_from_a_file_of_its_users() {
    let Some(url) = place::server("password_from_file") else { return };
    let secret = secret(&url);
    let address: PostgresAddress = url.replace(&format!(":{secret}@"), "@").parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("passwords");
    fs::write(&file, format!("*:*:*:offspring:{secret}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(refused(&address).await, StoreError::Unusable { .. }));
    let found = |name: &str| (name == "PGPASSFILE").then(|| file.clone().into_os_string());
    open(&address.with_password(found).unwrap()).await.close().await.unwrap();
}

/// A certificate for `localhost`, and who has signed it. Made for this test and worth nothing.
fn certificates() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/postgres/certificates")
}

#[tokio::test]
async fn verify_full_takes_the_right_certificate_and_name_and_nothing_else() {
    let Some(mut server) = own_server("verify_full") else { return };
    let mut url = server.url();
    let (ours, others) = (certificates().join("authority.pem"), certificates().join("other-authority.pem"));
    let with = |url: &str, host: &str, parameters: &str| -> PostgresAddress {
        let url = url.replace("127.0.0.1", host);
        format!("{url}?schema=tls&{parameters}").parse().unwrap()
    };
    let verified = |roots: &PathBuf| format!("sslmode=verify-full&sslrootcert={}", roots.display());
    // It does not speak TLS: nothing is sent in the clear instead.
    let error = refused(&with(&url, "localhost", &verified(&ours))).await;
    assert!(matches!(error, StoreError::Unusable { .. }) && error.to_string().contains("TLS"), "{error}");
    server.speak_tls(&certificates().join("server.pem"), &certificates().join("server.key")).unwrap();
    server.stop(Stop::Fast).unwrap();
    server.begin().unwrap();
    url.clone_from(&server.url());
    let store = open(&with(&url, "localhost", &verified(&ours))).await;
    store.close().await.unwrap();
    // The name is another one, the authority is another one, none is named.
    for (host, parameters) in [
        ("127.0.0.1", verified(&ours)),
        ("localhost", verified(&others)),
        ("localhost", "sslmode=verify-full".to_owned()),
    ] {
        let error = refused(&with(&url, host, &parameters)).await;
        let said = error.to_string();
        assert!(
            matches!(error, StoreError::Unusable { .. }) && said.contains("certificate"),
            "{host}: {said}"
        );
    }
    let error = refused(&with(&url, "localhost", "sslmode=verify-full&sslrootcert=/nowhere.pem")).await;
    assert!(error.to_string().contains("/nowhere.pem"), "{error}");
}
