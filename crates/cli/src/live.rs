//! The live tree on stderr: one line per session while a run goes on.
//!
//! On a terminal the lines are redrawn in place, no more of them than the window has; what does not fit is
//! folded, sessions at work last. Elsewhere each change is a plain line of its own.

mod rows;
pub(crate) mod wire;

use std::{
    collections::VecDeque,
    io::{self, IsTerminal},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use offspring_protocol::{Envelope, SessionId, SessionInfo};
use offspring_sessions::{
    Lagged, QueueLimits, Scope, SessionManager, SessionRecord, StoreError, Subscription, ids,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};

use crate::{
    look,
    paint::{self, Painted},
    screen::{Screen, Size},
    text::{for_stderr, tell},
};
use rows::Tree;

/// Lines are redrawn this often, so that elapsed times advance.
const REDRAW: Duration = Duration::from_millis(100);
/// Where lines are printed and not redrawn, silence is looked at this often.
const LISTEN: Duration = Duration::from_secs(1);
/// What the live tree may have in front of it, in bytes; when it is slower it goes on with what is stored.
const HEARD_BYTES: usize = 2 << 20;
/// Lines of the tree that is printed at the end: more would push the answer out of sight.
const AT_THE_END: usize = 100;

/// The view of one run.
pub(crate) struct Live {
    tree: Arc<Mutex<Tree>>,
    stop: watch::Sender<bool>,
    drawing: Option<JoinHandle<()>>,
    screen: Option<Arc<Screen>>,
}

/// What was seen, to be printed once more at the end.
pub(crate) struct Seen {
    tree: Arc<Mutex<Tree>>,
    on_terminal: bool,
}

/// What happens from now on, for [`Live::start`].
pub(crate) fn hear(manager: &SessionManager) -> Subscription {
    manager.bus().subscribe(Scope::All, QueueLimits { bytes: HEARD_BYTES, ..QueueLimits::default() })
}

fn lock(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A row as it goes to stderr.
fn painted(row: &Painted) -> String {
    row.render(paint::is_wanted(io::stderr().is_terminal()), for_stderr)
}

impl Live {
    /// Shows a run; with `quiet` it shows nothing. `heard` was subscribed before the run began.
    pub(crate) fn start(
        manager: &SessionManager,
        root: &Arc<SessionInfo>,
        heard: Subscription,
        quiet: bool,
    ) -> Self {
        let pool = Pool { manager: manager.clone(), root: root.id.clone(), heard };
        Self::over(root, Some(pool), quiet)
    }

    fn over(root: &Arc<SessionInfo>, pool: Option<Pool>, quiet: bool) -> Self {
        let mut tree = Tree::default();
        tree.add(root, ids::now());
        let tree = Arc::new(Mutex::new(tree));
        let (stop, stopped) = watch::channel(false);
        let screen = (!quiet && can_redraw()).then(Arc::<Screen>::default);
        let view = View { pool, tree: Arc::clone(&tree) };
        let drawing = view.draw(screen.clone(), stopped);
        let runtime = tokio::runtime::Handle::current();
        // Away from the threads of the runtime: a terminal that is held must not hold up the run.
        let drawing = (!quiet).then(|| tokio::task::spawn_blocking(move || runtime.block_on(drawing)));
        Self { tree, stop, drawing, screen }
    }

    /// Says something beside the tree; not at once, when nobody reads.
    pub(crate) fn say(&self, text: &'static str) -> JoinHandle<()> {
        let (screen, shows) = (self.screen.clone(), self.drawing.is_some());
        tokio::task::spawn_blocking(move || match screen {
            Some(screen) => screen.say(text),
            None if shows => tell(text),
            None => {}
        })
    }

    /// What leaves the terminal as it was, at once.
    pub(crate) fn abandoning(&self) -> impl FnOnce() + Send + 'static {
        let screen = self.screen.clone();
        move || {
            if let Some(screen) = screen {
                screen.close();
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
        Seen { on_terminal: self.screen.is_some(), tree: Arc::clone(&self.tree) }
    }
}

impl Drop for Live {
    /// However the run ended.
    fn drop(&mut self) {
        self.abandoning()();
    }
}

impl Seen {
    /// The whole tree once more, on a terminal: elsewhere its lines were printed as they came.
    pub(crate) fn print_tree(&self, records: &[SessionRecord]) {
        if self.on_terminal {
            lock(&self.tree).settle(records);
            let width = Size::of_stderr().width();
            for line in lock(&self.tree).lines(AT_THE_END, width) {
                tell_painted(&line);
            }
        }
    }
}

fn tell_painted(line: &Painted) {
    // Made harmless already, and with our own sequences in it.
    crate::text::tell_as_is(&painted(line));
}

/// Whether rows can be redrawn in place.
fn can_redraw() -> bool {
    io::stderr().is_terminal() && !paint::is_dumb()
}

/// What draws.
struct View {
    /// Where it hears of the tree, unless somebody else tells the tree.
    pool: Option<Pool>,
    tree: Arc<Mutex<Tree>>,
}

/// A run of a pool.
struct Pool {
    manager: SessionManager,
    root: SessionId,
    heard: Subscription,
}

impl View {
    async fn draw(mut self, screen: Option<Arc<Screen>>, mut stopped: watch::Receiver<bool>) {
        let mut redraw = tokio::time::interval(if screen.is_some() { REDRAW } else { LISTEN });
        redraw.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut resized = signal(SignalKind::window_change()).ok();
        loop {
            tokio::select! {
                // What was said before the end is shown before it.
                biased;
                () = window_changes(resized.as_mut()), if screen.is_some() => {}
                _ = redraw.tick() => {
                    if let Some(Pool { manager, .. }) = &self.pool {
                        let silent = lock(&self.tree).listen(|id| manager.silence(id));
                        if screen.is_none() {
                            silent.iter().for_each(tell_painted);
                        }
                    }
                }
                envelopes = heard(self.pool.as_mut()) => {
                    match envelopes {
                        Ok(Some(envelopes)) => {
                            for envelope in envelopes {
                                let change = lock(&self.tree).take(&envelope);
                                if let (Some(change), None) = (change, &screen) {
                                    tell_painted(&change);
                                }
                            }
                        }
                        Ok(None) => return,
                        Err(lagged) => {
                            tracing::info!(lagged.missed, "the live view was too slow; it goes on with what is stored");
                            if let Err(error) = self.catch_up(screen.is_none()).await {
                                tracing::warn!(%error, "the live view cannot catch up");
                            }
                        }
                    }
                    continue;
                }
                () = ended(&mut stopped) => return,
            }
            if let Some(screen) = &screen {
                let size = Size::of_stderr();
                let lines = lock(&self.tree).lines(size.height(), size.width());
                screen.show(lines.iter().map(painted).collect(), size);
            }
        }
    }

    /// Takes the states of all sessions from the store.
    async fn catch_up(&mut self, print: bool) -> Result<(), StoreError> {
        let Some(pool) = &mut self.pool else { return Ok(()) };
        pool.heard = hear(&pool.manager);
        for record in pool.manager.subtree(&pool.root).await? {
            let Some(run) = &record.last_run else { continue };
            let (state, opened) = (run.state, run.opened_at);
            let took = state.outcome().and_then(|_| look::wall(&record));
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
            let change = lock(&self.tree).correct(&Arc::new(info), state, opened, took);
            if let (Some(change), true) = (change, print) {
                tell_painted(&change);
            }
        }
        Ok(())
    }
}

/// What happened next; never anything where nothing is heard.
async fn heard(pool: Option<&mut Pool>) -> Result<Option<VecDeque<Arc<Envelope>>>, Lagged> {
    match pool {
        Some(pool) => pool.heard.recv_many().await,
        None => std::future::pending().await,
    }
}

async fn window_changes(resized: Option<&mut Signal>) {
    match resized {
        Some(resized) => drop(resized.recv().await),
        None => std::future::pending().await,
    }
}

async fn ended(stopped: &mut watch::Receiver<bool>) {
    // Whoever could say so being gone says it too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
