//! Where a database is and who we are there, without ever showing the password.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use tokio_postgres::config::{Config, Host, SslMode};

/// The schema our tables are in when none is named.
const SCHEMA: &str = "offspring";
/// Where the sockets of a server of this machine are on most systems.
const SOCKETS: &str = "/var/run/postgresql";

/// Where a database is: `postgres://USER@HOST:PORT/DATABASE`.
///
/// | parameter | meaning |
/// |---|---|
/// | `schema` | the schema with our tables; `offspring` when none is named |
/// | `sslmode` | `verify-full`, or `disable`; without it, servers that are not on this machine are verified |
/// | `sslrootcert` | a file with the certificates to trust, instead of the system's |
/// | `passfile` | a file with passwords, instead of `PGPASSFILE` and `~/.pgpass` |
/// | others | as libpq has them: `host`, `port`, `user`, `dbname`, `connect_timeout` … |
///
/// Neither `Display` nor `Debug` shows a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresAddress {
    config: Config,
    schema: String,
    verified: bool,
    roots: Option<PathBuf>,
    passwords: Option<PathBuf>,
}

/// Why a text names no database. It repeats nothing of the text that may be a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no address of a database (postgres://USER@HOST:PORT/DATABASE): {0}")]
pub struct BadAddress(String);

impl PostgresAddress {
    /// Whether a text is meant to be one.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Whether the address itself holds a password, which others can read where it stands in a command line.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Whether all its hosts are this machine: a socket, or the loopback.
    #[must_use]
    pub fn is_local(&self) -> bool {
        is_here(&self.config)
    }

    /// The schema with our tables.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Finds the password where libpq does: in the address, `PGPASSWORD`, the file of `passfile`, `PGPASSFILE`,
    /// `~/.pgpass`. None is needed where the server asks for none.
    ///
    /// # Errors
    /// When a file that was named cannot be read, or others than its user can read it.
    pub fn with_password(mut self, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, BadAddress> {
        if self.has_password() {
            return Ok(self);
        }
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(password) = set("PGPASSWORD") {
            self.config.password(password.into_encoded_bytes());
            return Ok(self);
        }
        let named = self.passwords.clone().or_else(|| set("PGPASSFILE").map(PathBuf::from));
        let usual =
            || set("HOME").map(|home| PathBuf::from(home).join(".pgpass")).filter(|file| file.is_file());
        if let Some(file) = named.or_else(usual) {
            let found = self
                .look_up(&file)
                .map_err(|error| BadAddress(format!("the file of passwords {}: {error}", file.display())))?;
            if let Some(password) = found {
                self.config.password(password);
            }
        }
        Ok(self)
    }

    /// The password for us in a file of lines `host:port:database:user:password`.
    fn look_up(&self, file: &Path) -> std::io::Result<Option<String>> {
        let opened = File::open(file)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let found = opened.metadata()?;
            if found.is_file() && found.mode() & 0o077 != 0 {
                return Err(std::io::Error::other("others can read it; chmod 600"));
            }
        }
        let user = self.config.get_user().unwrap_or_default();
        let database = self.config.get_dbname().unwrap_or(user);
        let mut wanted: Vec<[String; 4]> = Vec::new();
        for (host, port) in self.hosts() {
            let host = if host.starts_with('/') { "localhost".to_owned() } else { host };
            wanted.push([host, port.to_string(), database.to_owned(), user.to_owned()]);
        }
        for line in BufReader::new(opened).lines() {
            let line = line?;
            if line.starts_with('#') {
                continue;
            }
            let [ours @ .., password] = &fields(&line)[..] else { continue };
            let matches = |wanted: &[String; 4]| {
                ours.len() == 4 && ours.iter().zip(wanted).all(|(ours, wanted)| ours == "*" || ours == wanted)
            };
            if wanted.iter().any(matches) {
                return Ok(Some(password.clone()));
            }
        }
        Ok(None)
    }

    fn hosts(&self) -> Vec<(String, u16)> {
        let ports = self.config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        let name = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(directory) => directory.to_string_lossy().into_owned(),
        };
        self.config.get_hosts().iter().enumerate().map(|(at, host)| (name(host), port(at))).collect()
    }

    /// How to connect; `settings` are set for the session.
    pub(super) fn config(&self, settings: &[(&str, String)]) -> Config {
        let mut config = self.config.clone();
        let mut options = config.get_options().unwrap_or_default().to_owned();
        for (name, value) in settings {
            options.push_str(&format!(" -c {name}={value}"));
        }
        config.options(options);
        config
    }

    pub(super) const fn is_verified(&self) -> bool {
        self.verified
    }

    pub(super) fn roots(&self) -> Option<&Path> {
        self.roots.as_deref()
    }
}

fn is_here(config: &Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    })
}

/// The fields of a line, as libpq escapes them.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let last = fields.len() - 1;
        match letter {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields[last].extend(letters.next()),
            other => fields[last].push(other),
        }
    }
    fields
}

impl FromStr for PostgresAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if !Self::is_meant(text) {
            return Err(BadAddress("it does not begin with postgres://".to_owned()));
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut ours, mut theirs): (Vec<(&str, String)>, Vec<&str>) = (Vec::new(), Vec::new());
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if ["schema", "sslmode", "sslrootcert", "passfile"].contains(&name) {
                ours.push((name, decoded(value)?));
            } else {
                theirs.push(parameter);
            }
        }
        let take =
            |name: &str| ours.iter().rev().find(|(ours, _)| *ours == name).map(|(_, value)| value.clone());
        let rest = if theirs.is_empty() { base.to_owned() } else { format!("{base}?{}", theirs.join("&")) };
        let mut config: Config = rest.parse().map_err(|_| {
            BadAddress(
                "a part of it is not as it should be; special characters of a password are written as %XX"
                    .to_owned(),
            )
        })?;
        if config.get_hosts().is_empty() {
            config.host_path(SOCKETS);
        }
        let is_odd = |host: &Host| matches!(host, Host::Tcp(name) if name.contains(['@', '/', ':', '%']) && name.parse::<std::net::IpAddr>().is_err());
        if config.get_hosts().iter().any(is_odd) {
            return Err(BadAddress(
                "its host is none; special characters of a password are written as %XX".to_owned(),
            ));
        }
        let schema = take("schema").unwrap_or_else(|| SCHEMA.to_owned());
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let is_name = schema.len() <= 63
            && schema.bytes().all(plain)
            && !schema.starts_with(|letter: char| letter.is_ascii_digit())
            && !schema.is_empty()
            && !schema.starts_with("pg_");
        if !is_name {
            return Err(BadAddress("its schema is not a name of a-z, 0-9 and _".to_owned()));
        }
        let here = is_here(&config);
        let verified = match take("sslmode").as_deref() {
            None => !here,
            Some("disable") => false,
            // Who asks for less gets more: encryption alone does not say who answers.
            Some("require" | "verify-ca" | "verify-full") => true,
            Some(_) => return Err(BadAddress("its sslmode is neither verify-full nor disable".to_owned())),
        };
        config.ssl_mode(if verified { SslMode::Require } else { SslMode::Disable });
        if config.get_application_name().is_none() {
            config.application_name("offspring");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        // A server that is gone without a word is noticed within half a minute.
        config.keepalives_idle(Duration::from_secs(10)).keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(4).tcp_user_timeout(Duration::from_secs(30));
        let path = |name| take(name).map(PathBuf::from);
        Ok(Self { config, schema, verified, roots: path("sslrootcert"), passwords: path("passfile") })
    }
}

fn decoded(text: &str) -> Result<String, BadAddress> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'%' => match (digit(), digit()) {
                #[expect(clippy::cast_possible_truncation, reason = "two digits are one byte")]
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err(BadAddress("a % in it is not followed by two digits".to_owned())),
            },
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| BadAddress("it is not UTF-8".to_owned()))
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = self.config.get_user() {
            write!(f, "{user}@")?;
        }
        for (at, (host, port)) in self.hosts().into_iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{host}:{port}")?;
        }
        if let Some(database) = self.config.get_dbname() {
            write!(f, "/{database}")?;
        }
        if self.schema != SCHEMA {
            write!(f, "?schema={}", self.schema)?;
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresAddress({self}")?;
        if self.verified { f.write_str(", verified)") } else { f.write_str(", not encrypted)") }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const SECRET: &str = "hunter2";

    fn address(text: &str) -> PostgresAddress {
        text.parse().unwrap()
    }

    #[test]
    fn a_password_is_shown_nowhere() {
        for text in [
            "postgres://me:hunter2@db.example:5433/work?sslmode=verify-full&schema=mine",
            "postgresql://me@db.example/work?password=hunter2",
        ] {
            let address = address(text);
            assert!(address.has_password());
            let shown = format!("{address} {address:?} {address:#?}");
            assert!(!shown.contains(SECRET), "{shown}");
            assert!(shown.contains("me@db.example"));
        }
        // What cannot be read is not repeated.
        for text in [
            "postgres://me:hunter2@h:port/db",
            "postgres://me:x@hunter2@h/db",
            "postgres://me:hunter2@h/db?hunter2=1",
            "postgres://me:hunter2@h/db?sslmode=hunter2",
            "postgres://me:hunter2@h/db?schema=hunter2;",
            "hunter2://",
        ] {
            let refused = text.parse::<PostgresAddress>().map_err(|error| error.to_string());
            let shown = format!("{refused:?}");
            assert!(refused.is_err() && !shown.contains(SECRET), "{text}: {shown}");
        }
    }

    #[test]
    fn servers_elsewhere_are_verified_unless_somebody_says_otherwise() {
        for (text, verified) in [
            ("postgres:///db", false),
            ("postgres://localhost/db", false),
            ("postgres://127.0.0.1/db", false),
            ("postgres://me@[::1]:1/db", false),
            ("postgres://%2Ftmp%2Fsockets/db", false),
            ("postgres://db.example/db", true),
            ("postgres://localhost,db.example/db", true),
            ("postgres://db.example/db?sslmode=require", true),
            ("postgres://localhost/db?sslmode=verify-full", true),
            ("postgres://db.example/db?sslmode=disable", false),
        ] {
            assert_eq!(address(text).is_verified(), verified, "{text}");
        }
        for mode in ["prefer", "allow", "", "on"] {
            assert!(format!("postgres://h/db?sslmode={mode}").parse::<PostgresAddress>().is_err(), "{mode}");
        }
    }

    #[test]
    fn a_schema_is_a_plain_name() {
        assert_eq!(address("postgres://h/db").schema(), "offspring");
        assert_eq!(address("postgres://h/db?schema=a_1").schema(), "a_1");
        for schema in ["", "A", "1a", "a-b", "a%20b", "pg_x", "a%27", &"a".repeat(64)] {
            assert!(
                format!("postgres://h/db?schema={schema}").parse::<PostgresAddress>().is_err(),
                "{schema}"
            );
        }
    }

    #[test]
    fn passwords_come_from_where_libpq_looks_in_its_order() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("passwords");
        let mut lines = File::create(&file).unwrap();
        writeln!(lines, "# a comment\nother:*:*:*:wrong\nh:5433:*:me:a\\:b\\\\c:d\n*:*:*:*:rest\nshort:line")
            .unwrap();
        let of = |text: &str, variables: &[(&str, &str)]| {
            let found = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            address(text).with_password(found).map(|address| {
                address.config.get_password().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            })
        };
        let named = file.to_str().unwrap();
        let refused = of("postgres://me@h/db", &[("PGPASSFILE", named)]).unwrap_err().to_string();
        assert!(refused.contains("chmod 600") && refused.contains(named), "{refused}");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let passfile = format!("postgres://me@h:5433/db?passfile={named}");
        assert_eq!(of(&passfile, &[]).unwrap().unwrap(), "a:b\\c:d");
        assert_eq!(of("postgres://me@h:5432/db", &[("PGPASSFILE", named)]).unwrap().unwrap(), "rest");
        assert_eq!(of(&passfile, &[("PGPASSWORD", "p")]).unwrap().unwrap(), "p");
        assert_eq!(of("postgres://me:own@h/db", &[("PGPASSWORD", "p")]).unwrap().unwrap(), "own");
        assert_eq!(of("postgres://me@h/db", &[("HOME", dir.path().to_str().unwrap())]).unwrap(), None);
        assert!(of("postgres://me@h/db", &[("PGPASSFILE", "/nowhere")]).is_err());
    }
}
