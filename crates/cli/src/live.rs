//! The live tree on stderr: one line per session while a run goes on.
//!
//! On a terminal the lines are redrawn in place, no more of them than the window has; what does not fit is
//! folded, sessions at work last. Elsewhere each change is a plain line of its own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use console::{Term, truncate_str};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use offspring_protocol::{Envelope, Event, Outcome, RunState, SessionId, SessionInfo};
use offspring_sessions::{Scope, SessionManager, StoreError, Subscription};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    look::branches,
    text::{duration, plain, sign, tell, word},
    variables,
};

/// Lines are redrawn this often, so that elapsed times advance.
const REDRAW: Duration = Duration::from_millis(100);
/// Lines of the window that are left alone.
const MARGIN: usize = 2;

/// The view of one run.
pub(crate) struct Live {
    tree: Arc<Mutex<Tree>>,
    stop: watch::Sender<bool>,
    drawing: Option<JoinHandle<()>>,
    screen: Option<MultiProgress>,
}

/// What was seen, to be printed once more at the end.
pub(crate) struct Seen {
    tree: Arc<Mutex<Tree>>,
    on_terminal: bool,
}

#[derive(Default)]
struct Tree {
    rows: Vec<Row>,
    places: HashMap<SessionId, usize>,
}

struct Row {
    info: Arc<SessionInfo>,
    state: RunState,
    since: Instant,
    took: Option<Duration>,
    last: String,
}

fn lock(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// Shows a run; with `quiet` it shows nothing. `heard` was subscribed before the run began.
    pub(crate) fn start(
        manager: &SessionManager,
        root: &Arc<SessionInfo>,
        heard: Subscription,
        quiet: bool,
    ) -> Self {
        let mut tree = Tree::default();
        tree.add(root);
        let tree = Arc::new(Mutex::new(tree));
        let (stop, stopped) = watch::channel(false);
        let can_redraw =
            Term::stderr().is_term() && std::env::var_os(variables::TERM).is_none_or(|term| term != "dumb");
        let screen = (!quiet && can_redraw)
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(20)));
        let view = View { manager: manager.clone(), root: root.id.clone(), tree: Arc::clone(&tree) };
        let drawing = view.draw(heard, screen.clone(), stopped);
        let runtime = tokio::runtime::Handle::current();
        // Away from the threads of the runtime: a terminal that is held must not hold up the run.
        let drawing = (!quiet).then(|| tokio::task::spawn_blocking(move || runtime.block_on(drawing)));
        Self { tree, stop, drawing, screen }
    }

    /// Says something beside the tree; not at once, when nobody reads.
    pub(crate) fn say(&self, text: &'static str) -> JoinHandle<()> {
        let (screen, shows) = (self.screen.clone(), self.drawing.is_some());
        tokio::task::spawn_blocking(move || match screen {
            // A window that cannot be drawn to has nobody in front of it.
            Some(screen) => drop(screen.println(text)),
            None if shows => tell(text),
            None => {}
        })
    }

    /// What leaves the terminal as it was, at once.
    pub(crate) fn abandoning(&self) -> impl FnOnce() + Send + 'static {
        let screen = self.screen.clone();
        move || {
            if let Some(screen) = screen {
                let _ = screen.clear();
            }
        }
    }

    /// Stops drawing and gives what was seen.
    pub(crate) async fn finish(mut self) -> Seen {
        self.stop.send_replace(true);
        if let Some(drawing) = self.drawing.take() {
            let _ = drawing.await;
        }
        self.abandoning()();
        Seen { on_terminal: self.screen.is_some(), tree: self.tree }
    }
}

impl Seen {
    /// The whole tree once more, on a terminal: elsewhere its lines were printed as they came.
    pub(crate) fn print_tree(&self) {
        if self.on_terminal {
            let width = usize::from(Term::stderr().size().1);
            for line in lock(&self.tree).lines(usize::MAX, width) {
                tell(&line);
            }
        }
    }
}

/// What draws.
struct View {
    manager: SessionManager,
    root: SessionId,
    tree: Arc<Mutex<Tree>>,
}

impl View {
    async fn draw(
        self,
        mut heard: Subscription,
        screen: Option<MultiProgress>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut lines = screen.map(Lines::new);
        let mut redraw = tokio::time::interval(REDRAW);
        loop {
            tokio::select! {
                // What was said before the end is shown before it.
                biased;
                envelopes = heard.recv_many() => match envelopes {
                    Ok(Some(envelopes)) => {
                        for envelope in envelopes {
                            let change = lock(&self.tree).take(&envelope);
                            if let (Some(change), None) = (change, &lines) {
                                tell(&change);
                            }
                        }
                    }
                    Ok(None) => return,
                    Err(lagged) => {
                        tracing::info!(lagged.missed, "the live view was too slow; it goes on with what is stored");
                        heard = self.manager.subscribe(Scope::All);
                        if let Err(error) = self.catch_up(lines.is_none()).await {
                            tracing::warn!(%error, "the live view cannot catch up");
                        }
                    }
                },
                () = ended(&mut stopped) => return,
                _ = redraw.tick(), if lines.is_some() => {
                    if let Some(lines) = &mut lines {
                        lines.show(&self.tree);
                    }
                }
            }
        }
    }

    /// Takes the states of all sessions from the store.
    async fn catch_up(&self, print: bool) -> Result<(), StoreError> {
        for record in self.manager.subtree(&self.root).await? {
            let Some(state) = record.run_state() else { continue };
            let data = record.data;
            let info = SessionInfo {
                path: [data.id.clone()].into(),
                id: data.id,
                root: data.root_id,
                parent: data.parent_id,
                depth: data.depth,
                agent_name: data.agent_name,
                agent_type: data.agent_type,
                source_type: data.source_type,
            };
            let change = lock(&self.tree).correct(&Arc::new(info), state);
            if let (Some(change), true) = (change, print) {
                tell(&change);
            }
        }
        Ok(())
    }
}

async fn ended(stopped: &mut watch::Receiver<bool>) {
    // Whoever could say so being gone says it too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Lines of a terminal that are redrawn in place.
struct Lines {
    screen: MultiProgress,
    bars: Vec<ProgressBar>,
}

impl Lines {
    fn new(screen: MultiProgress) -> Self {
        Self { screen, bars: Vec::new() }
    }

    fn show(&mut self, tree: &Mutex<Tree>) {
        let (height, width) = Term::stderr().size();
        let lines = lock(tree).lines(usize::from(height).saturating_sub(MARGIN).max(1), usize::from(width));
        while self.bars.len() > lines.len() {
            if let Some(bar) = self.bars.pop() {
                bar.finish_and_clear();
                self.screen.remove(&bar);
            }
        }
        while self.bars.len() < lines.len() {
            let bar = self.screen.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                bar.set_style(style);
            }
            self.bars.push(bar);
        }
        for (bar, line) in self.bars.iter().zip(lines) {
            bar.set_message(line);
        }
    }
}

impl Tree {
    fn add(&mut self, info: &Arc<SessionInfo>) -> usize {
        if let Some(place) = self.places.get(&info.id) {
            return *place;
        }
        let place = self.rows.len();
        self.places.insert(info.id.clone(), place);
        self.rows.push(Row {
            info: Arc::clone(info),
            state: RunState::Pending,
            since: Instant::now(),
            took: None,
            last: String::new(),
        });
        place
    }

    /// What a session's state is, whatever was heard of it; gives the line when that is news.
    fn correct(&mut self, info: &Arc<SessionInfo>, state: RunState) -> Option<String> {
        let place = self.add(info);
        let row = &mut self.rows[place];
        if row.state == state {
            return None;
        }
        row.state = state;
        row.took = state.outcome().map(|_| row.since.elapsed());
        Some(row.report())
    }

    /// Takes what happened; gives the line for whoever reads lines, when there is one.
    fn take(&mut self, envelope: &Envelope) -> Option<String> {
        let event = envelope.event.parse().ok()?;
        if let Event::SpawnSessionStart(spawn) = &event {
            let info = SessionInfo {
                id: spawn.child_session_id.clone(),
                root: envelope.session.root.clone(),
                parent: Some(spawn.parent_session_id.clone()),
                path: spawn.path.clone().into(),
                depth: spawn.depth,
                agent_name: spawn.source_name.clone(),
                agent_type: spawn.agent_type.clone(),
                source_type: Some(spawn.source_type.clone()),
            };
            self.add(&Arc::new(info));
            return None;
        }
        let place = self.add(&envelope.session);
        let row = &mut self.rows[place];
        if envelope.late {
            return None;
        }
        match event {
            Event::RunStarted(_) => {
                (row.state, row.since, row.took) = (RunState::Running, Instant::now(), None);
                Some(row.report())
            }
            Event::TextDelta(delta) => row.say(&delta.text),
            Event::Custom(custom) if custom.name == "stderr_line" => {
                let line: String = serde_json::from_str(custom.data.get()).unwrap_or_default();
                row.say(&line)
            }
            Event::RunError(error) => {
                row.last = plain(error.message.lines().next().unwrap_or_default()).into_owned();
                None
            }
            Event::StatusChanged(status) => {
                let outcome: Outcome = status.outcome?;
                row.state = RunState::Ended(outcome);
                row.took = Some(row.since.elapsed());
                Some(row.report())
            }
            _ => None,
        }
    }

    /// At most `height` lines, none wider than `width`: the tree, or of a tree that is too long what is at
    /// work and as much of the rest as there is room for.
    fn lines(&self, height: usize, width: usize) -> Vec<String> {
        let drawn = branches(&self.rows, |row| &row.info.id, |row| row.info.parent.as_ref());
        let room = if drawn.len() > height { height.saturating_sub(1) } else { height };
        let mut spare =
            room.saturating_sub(drawn.iter().filter(|(_, row)| row.state == RunState::Running).count());
        let mut at_work = room;
        let mut folded = 0;
        let mut lines = Vec::new();
        for (branch, row) in drawn {
            let budget = if row.state == RunState::Running { &mut at_work } else { &mut spare };
            if *budget == 0 {
                folded += 1;
                continue;
            }
            *budget -= 1;
            lines.push(
                truncate_str(&format!("{branch}{}", row.line()), width.saturating_sub(1), "…").into_owned(),
            );
        }
        if folded > 0 {
            lines.push(
                truncate_str(&format!("… and {folded} more"), width.saturating_sub(1), "…").into_owned(),
            );
        }
        lines
    }
}

impl Row {
    /// Its last line of output; nothing to print: a line for each would drown the rest.
    fn say(&mut self, text: &str) -> Option<String> {
        if let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) {
            self.last = plain(line.trim()).into_owned();
        }
        None
    }

    /// The line of its own that a change gets: without branches the depth says where it stands.
    fn report(&self) -> String {
        let indent = "  ".repeat(usize::try_from(self.info.depth).unwrap_or_default());
        format!("{indent}{}", self.line())
    }

    fn line(&self) -> String {
        let state = Some(self.state);
        let name = plain(self.info.agent_name.as_str());
        let took = self.took.unwrap_or_else(|| self.since.elapsed());
        let took =
            if self.state == RunState::Pending { String::new() } else { format!(" {}", duration(took)) };
        let last = if self.last.is_empty() { String::new() } else { format!("  {}", self.last) };
        format!("{} {name} {}{took}{last}", sign(state), word(state))
    }
}
