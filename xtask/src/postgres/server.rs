//! A PostgreSQL server that is thrown away: made in a temporary directory, reached through a socket there and a random
//! port of the loopback, and gone with whoever started it, however that ends.
//!
//! Also compiled into tests that stop and kill a server of their own, so it uses nothing but the standard library.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    net::TcpListener,
    os::unix::{
        fs::{DirBuilderExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// Where Debian keeps the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";
const USER: &str = "offspring";
/// Far more than any step takes.
const BOUND: Duration = Duration::from_secs(60);
/// Waits for the end of its input, which comes also when whoever holds it is killed; then stops the server and removes
/// what it left.
const WATCHER: &str = r#"cat >/dev/null
"$1/pg_ctl" -D "$2/data" -m immediate -w -t 30 stop >/dev/null 2>&1
rm -rf "$2""#;

/// The directory with the programs of a server: the one that is named, the newest of Debian's, or one on `PATH`.
pub(crate) fn programs(named: Option<PathBuf>) -> Option<PathBuf> {
    let has_all = |directory: &PathBuf| {
        ["initdb", "postgres", "pg_ctl"].iter().all(|program| directory.join(program).is_file())
    };
    if named.is_some() {
        return named.filter(has_all);
    }
    let entries = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, directory)| has_all(directory))
        .collect();
    versions.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    versions.pop().map(|(_, directory)| directory).or_else(|| std::env::split_paths(&path).find(has_all))
}

/// How a server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It ends its connections and writes everything.
    Fast,
    /// It ends at once, as in a crash, and recovers at the next start.
    Immediate,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    programs: PathBuf,
    directory: PathBuf,
    user: Option<(u32, u32)>,
    port: u16,
    password: String,
    durable: bool,
    postgres: Option<Child>,
    /// Stops the server when its input ends.
    watcher: Child,
}

impl Server {
    /// Makes one and starts it. With `durable` its commits reach the disk.
    pub(crate) fn start(programs: &Path, durable: bool) -> io::Result<Self> {
        let user = unprivileged()?;
        let directory = directory(user)?;
        let mut watcher = Command::new("sh");
        watcher.args(["-c", WATCHER, "sh"]).arg(programs).arg(&directory);
        // A group of its own: Ctrl-C is for whoever started this, and the end of that is what it waits for.
        watcher.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        become_user(&mut watcher, user, &directory);
        let mut server = Self {
            programs: programs.to_owned(),
            watcher: watcher.spawn()?,
            user,
            port: free_port()?,
            password: random()?,
            durable,
            postgres: None,
            directory,
        };
        server.initialize()?;
        // Another program may take the port between our look and the start.
        for _ in 0..4 {
            match server.try_begin() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => server.port = free_port()?,
                begun => return begun.map(|()| server),
            }
        }
        server.begin()?;
        Ok(server)
    }

    /// `postgres://…` with the password, by the loopback.
    pub(crate) fn url(&self) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{}/postgres", self.password, self.port)
    }

    /// Starts it again after a stop, with the same data and port.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        let started = Instant::now();
        loop {
            match self.try_begin() {
                // A client that looks for it all the time may be connected to itself for a moment.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && started.elapsed() < BOUND => {
                    // poll: nobody tells that a port is free
                    std::thread::sleep(Duration::from_millis(50));
                }
                done => return done,
            }
        }
    }

    fn try_begin(&mut self) -> io::Result<()> {
        let log = self.directory.join("log");
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.directory.join("data")).arg("-k").arg(&self.directory);
        command.args(["-p", &self.port.to_string()]);
        let mut settings = vec!["listen_addresses=127.0.0.1", "max_connections=300", "shared_buffers=64MB"];
        if !self.durable {
            settings.extend(["fsync=off", "full_page_writes=off"]);
        }
        for setting in settings {
            command.args(["-c", setting]);
        }
        command.process_group(0).stderr(File::create(&log)?);
        let mut postgres = command.spawn()?;
        let started = Instant::now();
        loop {
            if let Some(status) = postgres.try_wait()? {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let kind = match said.contains("Address already in use") {
                    true => io::ErrorKind::AddrInUse,
                    false => io::ErrorKind::Other,
                };
                return Err(io::Error::new(kind, format!("postgres ended with {status}: {said}")));
            }
            // Written when connections are taken.
            let state = fs::read_to_string(self.directory.join("data/postmaster.pid")).unwrap_or_default();
            if state.lines().nth(7).is_some_and(|line| line.trim() == "ready") {
                self.postgres = Some(postgres);
                return Ok(());
            }
            if started.elapsed() > BOUND {
                let _ = postgres.kill();
                return Err(io::Error::other("postgres did not start in time"));
            }
            // poll: the server writes its state into a file
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Speaks TLS from its next start on.
    pub(crate) fn speak_tls(&self, certificate: &Path, key: &Path) -> io::Result<()> {
        let data = self.directory.join("data");
        for (from, to) in [(certificate, "server.crt"), (key, "server.key")] {
            let to = data.join(to);
            fs::copy(from, &to)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600))?;
            if let Some((uid, gid)) = self.user {
                chown(&to, Some(uid), Some(gid))?;
            }
        }
        let mut settings = fs::OpenOptions::new().append(true).open(data.join("postgresql.auto.conf"))?;
        settings.write_all(b"ssl = on\n")
    }

    /// Stops it and waits for its end.
    pub(crate) fn stop(&mut self, how: Stop) -> io::Result<()> {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        let mut command = self.program("pg_ctl");
        command.arg("-D").arg(self.directory.join("data")).args(["-m", mode, "-w", "-t", "60", "stop"]);
        let stopped = command.output()?;
        if !stopped.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&stopped.stderr).into_owned()));
        }
        self.postgres.take().map_or(Ok(()), |mut postgres| postgres.wait().map(drop))
    }

    fn initialize(&self) -> io::Result<()> {
        // Read by the child alone: a password in a command line is for everybody.
        let secret = self.directory.join("password");
        fs::write(&secret, &self.password)?;
        if let Some((uid, gid)) = self.user {
            chown(&secret, Some(uid), Some(gid))?;
        }
        let mut command = self.program("initdb");
        command.arg("-D").arg(self.directory.join("data")).args(["-U", USER, "-E", "UTF8", "--locale=C"]);
        // The password goes over the loopback alone; a derived key costs a client that is not optimized 0.2 s each time.
        command.args(["--auth-local=trust", "--auth-host=password", "--no-sync"]);
        command.arg("--pwfile").arg(&secret);
        let made = command.output()?;
        fs::remove_file(&secret)?;
        if made.status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("initdb: {}", String::from_utf8_lossy(&made.stderr))))
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // Somebody's settings are for another server.
        for variable in ["PGDATA", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSWORD", "PGOPTIONS"] {
            command.env_remove(variable);
        }
        become_user(&mut command, self.user, &self.directory);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
        if let Some(mut postgres) = self.postgres.take() {
            // Stopped by the watcher; only its status is left to be taken.
            let _ = postgres.kill();
            let _ = postgres.wait();
        }
    }
}

fn become_user(command: &mut Command, user: Option<(u32, u32)>, directory: &Path) {
    command.current_dir(directory);
    if let Some((uid, gid)) = user {
        command.gid(gid).uid(uid);
    }
}

/// A server refuses to run as root: then it is the user that Debian made for it, or nobody.
fn unprivileged() -> io::Result<Option<(u32, u32)>> {
    let id = Command::new("id").arg("-u").output()?;
    if id.stdout.trim_ascii() != b"0" {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2);
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    };
    match find("postgres").or_else(|| find("nobody")) {
        Some(user) => Ok(Some(user)),
        None => Err(io::Error::other("there is neither a user postgres nor nobody to run it as")),
    }
}

/// A new directory that only the server's user can enter. Its path is short: a socket's has 107 bytes.
fn directory(user: Option<(u32, u32)>) -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("offspring-pg-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => {
                if let Some((uid, gid)) = user {
                    chown(&directory, Some(uid), Some(gid))?;
                }
                return Ok(directory);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn free_port() -> io::Result<u16> {
    // Below those that the system gives to clients, one of which could take it while the server is away.
    const PORTS: std::ops::Range<u16> = 20_000..32_000;
    const ATTEMPTS: u32 = 1_000;
    for _ in 0..ATTEMPTS {
        let mut bytes = [0; 2];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let port = PORTS.start + u16::from_ne_bytes(bytes) % (PORTS.end - PORTS.start);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no port between 20000 and 32000 is free"))
}

fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
