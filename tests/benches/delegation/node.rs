//! Nodes that work inside this process, and the manifests of pools made of them.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use offspring_delegation::{Agent, BuildError, Delegator, NodeFactory, NodeSpec, Prompt};
use offspring_pool::{Manifest, ManifestError};
use offspring_protocol::{Event, NodeName, event::TextDelta};
use offspring_sessions::{Answer, RunContext, RunError};
use serde::Deserialize;
use tokio::{sync::watch, time::MissedTickBehavior};

/// Lines of the log that belong to one child (see [`crate::announced`]).
pub(crate) const LINES_PER_CHILD: usize = 8;

/// The keys of `type: inprocess`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Settings {
    /// Deltas with the time of their emission in them; 0: one delta of text and one of thinking, without.
    #[serde(default)]
    stamped: u32,
    /// Milliseconds between two of them.
    #[serde(default)]
    every_ms: u64,
}

/// Makes agents of `type: inprocess`.
#[derive(Debug, Clone)]
pub(crate) struct InProcess {
    /// Agents with stamps begin when this becomes true.
    pub(crate) go: watch::Receiver<bool>,
}

impl InProcess {
    /// Whose agents wait for nothing.
    pub(crate) fn new() -> Self {
        Self { go: watch::channel(true).1 }
    }
}

impl NodeFactory for InProcess {
    type Settings = Settings;

    fn kind(&self) -> &'static str {
        "inprocess"
    }

    fn build(&self, settings: Settings, spec: NodeSpec, _: &Delegator) -> Result<Arc<dyn Agent>, BuildError> {
        Ok(Arc::new(Speaker { name: spec.name, settings, go: self.go.clone() }))
    }
}

/// Says two deltas and answers.
#[derive(Debug)]
struct Speaker {
    name: NodeName,
    settings: Settings,
    go: watch::Receiver<bool>,
}

impl Agent for Speaker {
    fn name(&self) -> &NodeName {
        &self.name
    }

    fn run(self: Arc<Self>, _: Prompt, cx: RunContext) -> BoxFuture<'static, Result<Answer, RunError>> {
        Box::pin(async move {
            if self.settings.stamped > 0 {
                self.stream(&cx).await?;
                return Ok("streamed".to_owned().into());
            }
            let delta = |text: &str| TextDelta { text: text.to_owned() };
            // Text after text could become one line while a commit is in flight (L16); these cannot.
            cx.emit(Event::ThinkingDelta(delta("what was asked, and what is there to answer it?"))).await?;
            cx.emit(Event::TextDelta(delta("The build has no lock file; pin it."))).await?;
            Ok("The build has no lock file; pin it.".to_owned().into())
        })
    }
}

impl Speaker {
    async fn stream(&self, cx: &RunContext) -> Result<(), RunError> {
        let mut go = self.go.clone();
        // Without a sender nobody is waited for.
        let _ = go.wait_for(|go| *go).await;
        let mut every = tokio::time::interval(Duration::from_millis(self.settings.every_ms.max(1)));
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..self.settings.stamped {
            every.tick().await;
            let text = crate::latency::stamp();
            cx.emit(Event::TextDelta(TextDelta { text })).await?;
        }
        Ok(())
    }
}

/// A pool of these agents in one parallel team, which is its entry.
pub(crate) fn team(members: usize) -> Result<Manifest, ManifestError> {
    let mut text = String::from("name: bench\nagents:\n");
    for member in 0..members {
        let _ = writeln!(text, "  member-{member}: {{type: inprocess}}");
    }
    let names = (0..members).map(|member| format!("member-{member}")).collect::<Vec<_>>().join(", ");
    let _ = writeln!(text, "teams:\n  all: {{mode: parallel, members: [{names}]}}\nentry: all");
    manifest(&text)
}

/// A pool whose entry is a team of so many teams of so many agents.
pub(crate) fn team_of_teams(teams: usize, members: usize) -> Result<Manifest, ManifestError> {
    let list = |name: &str, count: usize| vec![name; count].join(", ");
    manifest(&format!(
        "name: bench\nlimits: {{max_descendants: 20000}}\nagents:\n  one: {{type: inprocess}}\nteams:\n  \
         group: {{mode: parallel, members: [{}]}}\n  all: {{mode: parallel, members: [{}]}}\nentry: all\n",
        list("one", members),
        list("group", teams),
    ))
}

/// A manifest that is in no file.
pub(crate) fn manifest(text: &str) -> Result<Manifest, ManifestError> {
    Manifest::from_str(text, "bench.yaml".as_ref())
}
