//! `offspring watch --tui`: a tree to walk through, and the transcript of the selected session beside it, live or
//! afterwards.

mod draw;
mod read;
mod sessions;
mod transcript;
mod window;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

use offspring_protocol::{SessionData, SessionId};
use offspring_sessions::SessionManager;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior},
};

use crate::{
    exit,
    failure::Failure,
    paint,
    signals::{Ending, Signals},
    text::plain,
};
use read::{Read, Reader};
use sessions::Sessions;
use transcript::Transcript;
use window::Window;

/// Elapsed times advance this often.
const TICK: Duration = Duration::from_millis(250);
/// The store is looked at no more often than this.
const LOOK: Duration = Duration::from_millis(200);
/// Whether the program that runs the tree still lives is asked this often.
const SWEEP: Duration = Duration::from_secs(2);
/// A terminal that nobody reads may hold us up this long at the end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What is shown, and what is asked of it.
struct App {
    manager: SessionManager,
    top: SessionData,
    sessions: Sessions,
    /// Whose transcript it is, and the transcript once it is read.
    shown: Option<(SessionId, Option<Transcript>)>,
    reader: Reader,
    asks: Asks,
    /// What is said in the last row.
    note: Option<String>,
    /// Rows and columns of the transcript when it was drawn last.
    area: (usize, usize),
}

/// What the keys mean at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asks {
    Nothing,
    Help,
    /// Whether to cancel this session, of this name.
    Cancel(SessionId, String),
}

/// What a key leads to.
enum Next {
    GoOn,
    Quit(u8),
}

/// Shows the tree of `top` until somebody quits.
pub(crate) async fn watch(manager: SessionManager, top: SessionData) -> Result<ExitCode, Failure> {
    refuse_without_terminal()?;
    let stopped = heard(Signals::listen()?);
    let (mut window, mut keys) = Window::open()?;
    let code = App::new(manager, top).run(&mut window, &mut keys, stopped).await;
    window.close();
    Ok(ExitCode::from(code?))
}

/// Before a store is looked for.
pub(crate) fn refuse_without_terminal() -> Result<(), Failure> {
    let what = if !io::stdout().is_terminal() {
        "stdout is none"
    } else if !io::stdin().is_terminal() {
        "stdin is none"
    } else if paint::is_dumb() {
        "this one cannot move its cursor (TERM is `dumb` or not set)"
    } else {
        return Ok(());
    };
    Err(Failure::usage(format!(
        "watch --tui needs a terminal, and {what}\nwithout --tui, `offspring watch` prints lines"
    )))
}

/// The first signal. A terminal that holds us up does not make us deaf.
fn heard(mut signals: Signals) -> watch::Receiver<Option<Ending>> {
    let (said, stopped) = watch::channel(None);
    tokio::spawn(async move {
        let ending = signals.next().await;
        said.send_replace(Some(ending));
        tokio::time::sleep(LAST_WORDS).await;
        window::restore_modes();
        std::process::exit(i32::from(ending.exit_code()))
    });
    stopped
}

impl App {
    fn new(manager: SessionManager, top: SessionData) -> Self {
        let reader = Reader::new(manager.clone(), top.root_id.clone());
        Self {
            manager,
            top,
            sessions: Sessions::default(),
            shown: None,
            reader,
            asks: Asks::Nothing,
            note: None,
            area: (1, 1),
        }
    }

    async fn run(
        mut self,
        window: &mut Window,
        keys: &mut mpsc::Receiver<Event>,
        mut stopped: watch::Receiver<Option<Ending>>,
    ) -> Result<u8, Failure> {
        let mut changes = self.manager.store().changes();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut looked, mut swept, mut changed) = (None::<Instant>, Instant::now(), true);
        loop {
            if changed && looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
                (changed, looked) = (false, Some(Instant::now()));
                self.reader.sessions(&self.top.id);
                if let Some((_, Some(transcript))) = &mut self.shown {
                    transcript.look_again();
                }
            }
            if self.sessions.is_open() && swept.elapsed() >= SWEEP {
                swept = Instant::now();
                self.reader.sweep();
            }
            self.read_on();
            if let Err(error) = window.draw(|frame| self.draw(frame)) {
                tracing::info!(%error, "the terminal is gone");
                return Ok(exit::HUNG_UP);
            }
            tokio::select! {
                ending = stopped.wait_for(Option::is_some) => {
                    let ending = ending.ok().and_then(|ending| *ending);
                    return Ok(ending.map_or(exit::FAILED, Ending::exit_code));
                }
                event = keys.recv() => {
                    // Whatever was typed meanwhile is seen at once.
                    let mut event = event;
                    loop {
                        match event {
                            Some(event) => if let Next::Quit(code) = self.on(&event) { return Ok(code) },
                            // The terminal is gone.
                            None => return Ok(exit::HUNG_UP),
                        }
                        match keys.try_recv() {
                            Ok(next) => event = Some(next),
                            Err(_) => break,
                        }
                    }
                }
                read = self.reader.next() => self.take(read)?,
                change = changes.changed(), if !changed => changed = change.is_ok(),
                _ = tick.tick() => {}
            }
        }
    }

    /// Asks for what the transcript lacks.
    fn read_on(&mut self) {
        let Some(id) = self.sessions.selected().map(|record| record.data.id.clone()) else { return };
        if self.shown.as_ref().is_none_or(|(shown, _)| *shown != id) {
            self.shown = Some((id.clone(), None));
            self.reader.transcript(&id);
        }
        let (rows, columns) = self.area;
        if let Some((id, Some(transcript))) = &mut self.shown {
            transcript.resize(columns);
            if let Some(wanted) = transcript.wanted(rows) {
                self.reader.part(id, wanted);
            }
        }
    }

    fn take(&mut self, read: Read) -> Result<(), Failure> {
        match read {
            Read::Sessions(records) => {
                let records = records?;
                if records.is_empty() {
                    return Err(Failure::new(format!("{} was removed meanwhile", self.top.id)));
                }
                self.sessions.update(records);
            }
            Read::Starts(session, starts) => {
                let starts = starts?;
                if let Some((shown, transcript @ None)) = &mut self.shown
                    && *shown == session
                {
                    *transcript = Some(Transcript::new(self.area.1, starts));
                }
            }
            Read::After(session, lines) => {
                let lines = lines?;
                if let Some((shown, Some(transcript))) = &mut self.shown
                    && *shown == session
                {
                    transcript.append(&lines);
                }
            }
            Read::Page(session, page, lines) => {
                let lines = lines?;
                if let Some((shown, Some(transcript))) = &mut self.shown
                    && *shown == session
                {
                    transcript.prepend(page, &lines);
                }
            }
            Read::Swept(swept) => swept?,
            Read::Cancelled(name, answer) => {
                let answer = answer.map_or_else(|failure| failure.to_string(), |(_, text)| text);
                self.note = Some(format!("{name}: {}", plain(&answer.replace('\n', " "))));
            }
        }
        Ok(())
    }

    fn on(&mut self, event: &Event) -> Next {
        let Event::Key(key) = event else { return Next::GoOn };
        if key.kind == KeyEventKind::Release {
            return Next::GoOn;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Next::Quit(exit::INTERRUPTED);
        }
        match std::mem::replace(&mut self.asks, Asks::Nothing) {
            Asks::Cancel(session, name) => {
                if matches!(key.code, KeyCode::Char('y' | 'Y')) {
                    self.note = Some(format!("{name}: asked to stop"));
                    self.reader.cancel(&session, name);
                } else {
                    self.note = None;
                }
                Next::GoOn
            }
            // Any key closes it.
            Asks::Help => Next::GoOn,
            Asks::Nothing => {
                self.note = None;
                self.key(key)
            }
        }
    }

    fn key(&mut self, key: &KeyEvent) -> Next {
        let page = isize::try_from(self.area.0.saturating_sub(1).max(1)).unwrap_or(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Next::Quit(exit::DONE),
            KeyCode::Down | KeyCode::Char('j') => self.sessions.walk(1),
            KeyCode::Up | KeyCode::Char('k') => self.sessions.walk(-1),
            KeyCode::Home => self.sessions.walk(isize::MIN),
            KeyCode::End => self.sessions.walk(isize::MAX),
            KeyCode::Enter => self.sessions.fold(),
            KeyCode::Left | KeyCode::Char('h') => self.sessions.leave(),
            KeyCode::Right | KeyCode::Char('l') => self.sessions.enter(),
            KeyCode::PageDown | KeyCode::Char(' ' | 'd') => self.scroll(page),
            KeyCode::PageUp | KeyCode::Char('b' | 'u') => self.scroll(-page),
            KeyCode::Char('J') => self.scroll(1),
            KeyCode::Char('K') => self.scroll(-1),
            KeyCode::Char('g') => {
                if let Some((_, Some(transcript))) = &mut self.shown {
                    transcript.go_to_beginning();
                }
            }
            KeyCode::Char('G') => {
                if let Some((_, Some(transcript))) = &mut self.shown
                    && !transcript.go_to_end()
                {
                    // Begun again, it is read from its end.
                    self.shown = None;
                }
            }
            KeyCode::Char('?') => self.asks = Asks::Help,
            KeyCode::Char('c') => self.ask_to_cancel(),
            _ => {}
        }
        Next::GoOn
    }

    fn scroll(&mut self, by: isize) {
        if let Some((_, Some(transcript))) = &mut self.shown {
            transcript.scroll(by, self.area.0);
        }
    }

    fn ask_to_cancel(&mut self) {
        if let Some(record) = self.sessions.selected() {
            let name = plain(record.data.agent_name.as_str()).into_owned();
            self.asks = Asks::Cancel(record.data.id.clone(), name);
        }
    }
}
