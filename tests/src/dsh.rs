//! The real runtime for tests: found or skipped, with a world and a scripted model of its own.

use std::{
    ffi::OsString,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Finished, Running, fake_model::FakeModel};

/// What the runtime writes to stderr when a patch names something that it cannot start: it goes on without it.
const NOT_ACTIVATED: &str = "did not activate";

/// The fixture of this name.
#[must_use]
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/dsh").join(name)
}

/// The plugins that a runtime is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Patches on top of it.
    pub patches: Vec<PathBuf>,
}

impl Profile {
    /// Starts fastest, nests four deep: the one for a test that has no reason for another.
    #[must_use]
    pub fn nested() -> Self {
        Self { name: "sdk-minimal", patches: vec![fixture("minimal-nested.patch.yml")] }
    }

    /// Everything that a user gets, nesting four deep.
    #[must_use]
    pub fn full() -> Self {
        Self { name: "sdk", patches: vec![fixture("nested.patch.yml")] }
    }
}

/// A real runtime's world: a home, a directory to work in, a model. Several processes may share it, one after the other
/// or at once.
#[derive(Debug)]
pub struct RealRuntime {
    program: PathBuf,
    root: TempDir,
    model: FakeModel,
    /// What it is started with.
    pub profile: Profile,
}

impl RealRuntime {
    /// A world for this test; `None` when the runtime could not be fetched, and then the test is counted as skipped.
    ///
    /// # Panics
    /// When the runtime is missing for another reason.
    #[must_use]
    pub fn for_test(test: &str) -> Option<Self> {
        let program = peer("OFFSPRING_DSH_RUNTIME", test)?;
        let root = tempfile::Builder::new().prefix("dsh-").tempdir().expect("a temporary directory");
        for folder in ["home", "dsh", "work"] {
            fs::create_dir(root.path().join(folder)).expect("a folder");
        }
        Some(Self { program, root, model: FakeModel::start(), profile: Profile::nested() })
    }

    /// The same with another profile.
    #[must_use]
    pub fn with(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// The model it talks to.
    #[must_use]
    pub fn model(&self) -> &FakeModel {
        &self.model
    }

    /// The executable.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The directory its sessions work in.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// Where it keeps its sessions. As an environment variable it marks its processes.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.root.path().join("dsh")
    }

    /// Its arguments.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![OsString::from("--profile"), OsString::from(self.profile.name)];
        for patch in &self.profile.patches {
            arguments.extend([OsString::from("--patch"), patch.into()]);
        }
        arguments
    }

    /// Its whole environment: nothing of ours, nothing that leaves the machine.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        vec![
            ("PATH", path),
            ("HOME", self.root.path().join("home").into()),
            ("TMPDIR", self.root.path().into()),
            ("LANG", "C.UTF-8".into()),
            ("DSH_HOME", self.home().into()),
            ("DEEPSEEK_BASE_URL", self.model.url().into()),
            ("DEEPSEEK_API_KEY", "none".into()),
            ("DSH_TELEMETRY_MODE", "DISABLED".into()),
            // Where the kernel has no Landlock its own sandbox refuses every command.
            ("DSH_PERMISSION_MODE", "danger-full-access".into()),
        ]
    }

    /// A process of it that speaks on its pipes, driven line by line.
    #[must_use]
    pub fn start(&self) -> Wire {
        let mut command = Command::new(&self.program);
        command.args(self.arguments()).env_clear().envs(self.environment());
        command.current_dir(self.work()).stdin(Stdio::piped());
        Wire { running: Running::start(command), cwd: self.work() }
    }
}

/// The path that xtask put in a variable; `None` when the peer could not be fetched, and then the test is counted.
///
/// # Panics
/// When it is not there for another reason.
#[must_use]
pub fn peer(variable: &str, test: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(variable) {
        return Some(named.into());
    }
    let skipped = std::env::var("OFFSPRING_SKIP_PEERS").unwrap_or_default();
    assert!(
        skipped.split(',').any(|peer| peer == "dsh"),
        "{variable} is not set: run `cargo xtask test`, or `cargo xtask peers` to see what to set"
    );
    let file = std::env::var_os("OFFSPRING_SKIPPED_FILE").expect("where skips are counted");
    let mut file = fs::OpenOptions::new().append(true).open(file).expect("the file of skips");
    // In one write: other tests append at the same time.
    file.write_all(format!("dsh {test}\n").as_bytes()).expect("a line in it");
    None
}

/// A runtime at the other end of two pipes, without any client between.
#[derive(Debug)]
pub struct Wire {
    running: Running,
    cwd: PathBuf,
}

impl Wire {
    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Writes a line.
    pub fn line(&mut self, line: &str) {
        self.running.tell(line);
    }

    /// Sends a request and does not wait.
    pub fn send(&mut self, id: &str, method: &str, params: Option<&Value>) {
        let mut request = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        if let (Some(params), Some(object)) = (params, request.as_object_mut()) {
            object.insert("params".to_owned(), params.clone());
        }
        self.line(&request.to_string());
    }

    /// What comes up to and with the first message that is wanted.
    ///
    /// # Panics
    /// When it does not come.
    pub fn until(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> Vec<Value> {
        let mut seen = Vec::new();
        self.running.until_json(|message| {
            seen.push(message.clone());
            wanted(message)
        });
        seen
    }

    /// What comes up to and with the reply to this request; the reply is the last.
    ///
    /// # Panics
    /// When it does not come.
    pub fn reply(&mut self, id: &str) -> Vec<Value> {
        self.until(|message| message["id"] == id && message.get("method").is_none())
    }

    /// Asks and gives the reply: its result, or the message of its error.
    ///
    /// # Errors
    /// The message of an error.
    ///
    /// # Panics
    /// When there is no reply.
    pub fn ask(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.send(method, method, Some(params));
        let reply = self.reply(method).pop().expect("a reply");
        match reply.get("error") {
            None => Ok(reply["result"].clone()),
            Some(error) => {
                assert_eq!(error["code"], -32603, "{reply}");
                Err(error["message"].as_str().expect("a message").to_owned())
            }
        }
    }

    /// `initialize`, as every client does it.
    ///
    /// # Panics
    /// When it fails.
    pub fn initialize(&mut self) {
        let params =
            json!({ "cwd": self.cwd, "provider": "deepseek-official", "model": "deepseek-v4-flash" });
        let result = self.ask("initialize", &params).expect("initialized");
        assert_eq!(result["serverInfo"]["name"], "deepseek-harness-sdk-runtime");
    }

    /// Sends a prompt and does not wait.
    pub fn prompt(&mut self, id: &str, session: &str, text: &str) {
        let params = json!({ "sessionId": session, "contentBlocks": [{ "type": "text", "text": text }] });
        self.send(id, "session/prompt", Some(&params));
    }

    /// Ends its stdin and waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    #[must_use]
    pub fn end(mut self) -> Finished {
        self.running.close_stdin();
        self.running.finish()
    }

    /// `shutdown`, then its end, which has to be a good one.
    ///
    /// # Panics
    /// When it is not.
    pub fn shut_down(mut self) {
        self.send("shutdown", "shutdown", None);
        self.reply("shutdown");
        let end = self.end().with(0);
        assert!(!end.stderr.contains(NOT_ACTIVATED), "{}", end.stderr);
    }
}
