//! A terminal: a pseudo-terminal read by an emulator, so that a test sees what a person would.
//!
//! The emulator is the core of Alacritty: it wraps rows again when its window gets another width, keeps what scrolls
//! out, knows wide and combining characters, and answers what a program asks its terminal.

use std::{
    fs::File,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    process::{Child, Command},
    sync::{Arc, Mutex, MutexGuard},
    thread::JoinHandle,
    time::Duration,
};

use alacritty_terminal::{
    Term,
    event::{Event, EventListener},
    grid::Dimensions,
    index::{Column, Line},
    term::{Config, TermMode, cell::Flags},
    vte::ansi::{Processor, StdSyncHandler},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

use crate::{processes::send, until};

/// No program of a test runs longer on a terminal.
const BOUND: Duration = Duration::from_secs(60);
/// Rows that are kept when they scroll out.
const HISTORY: usize = 5_000;

/// A program with a terminal as its stdin, stdout and stderr, and as the terminal that controls it, below a shell as
/// a person's program is: keys become signals, and the terminal outlives the program.
pub struct Terminal {
    /// The shell, or the program itself.
    leader: Child,
    is_leader: bool,
    /// Our end; `None` once the window was closed.
    master: Master,
    window: Arc<Mutex<Window>>,
    /// Held, nobody reads what is written to the terminal.
    gate: Arc<Mutex<()>>,
    reading: Option<JoinHandle<()>>,
}

type Master = Arc<Mutex<Option<Arc<OwnedFd>>>>;

/// Runs a program, then tells its exit status in a sequence that no terminal shows, and leaves the terminal as it is
/// until a line is typed.
const SHELL: &str = r#"trap : INT QUIT; "$@"; printf '\033]777;ended=%s\007' $?; read -r line"#;
/// Before the exit status.
const ENDED: &str = "\u{1b}]777;ended=";

/// What stands where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// From 0 at the top of the window.
    pub row: usize,
    /// From 0 at its left.
    pub column: usize,
    /// Whether a person sees it.
    pub visible: bool,
}

struct Window {
    term: Term<Answers>,
    parser: Processor<StdSyncHandler>,
    shown: Vec<u8>,
}

/// What the terminal answers goes back to the program as if it was typed.
#[derive(Clone)]
struct Answers(Master);

impl EventListener for Answers {
    fn send_event(&self, event: Event) {
        if let Event::PtyWrite(text) = event {
            write_all(&self.0, text.as_bytes());
        }
    }
}

#[derive(Clone, Copy)]
struct Size {
    rows: u16,
    columns: u16,
}

impl Dimensions for Size {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }

    fn screen_lines(&self) -> usize {
        self.rows.into()
    }

    fn columns(&self) -> usize {
        self.columns.into()
    }
}

fn write_all(master: &Master, mut bytes: &[u8]) {
    let master = master.lock().unwrap().clone();
    while let (Some(master), false) = (&master, bytes.is_empty()) {
        bytes = &bytes[rustix::io::write(master, bytes).expect("the terminal takes what is typed")..];
    }
}

impl Terminal {
    /// Starts a program in a window of this size. It gets the environment that was set on `command` and nothing
    /// else; `TERM` is `xterm-256color` unless that says otherwise. A signal that ends it counts as 128 and its number.
    ///
    /// # Panics
    /// When there is no pseudo-terminal to be had.
    #[must_use]
    pub fn start(command: &Command, rows: u16, columns: u16) -> Self {
        Self::open(command, rows, columns, false)
    }

    /// The same without a shell in between: whoever closes the window sends SIGHUP to the program itself. What it
    /// writes at its very end may be lost, because the terminal goes with it.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_as_leader(command: &Command, rows: u16, columns: u16) -> Self {
        Self::open(command, rows, columns, true)
    }

    fn open(command: &Command, rows: u16, columns: u16, is_leader: bool) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a pseudo-terminal");
        grantpt(&master).expect("access to it");
        unlockpt(&master).expect("its other end");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let slave = File::options()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NOCTTY.bits().cast_signed())
            .open(std::ffi::OsStr::from_bytes(name.to_bytes()))
            .expect("its other end");
        let size = Size { rows, columns };
        tcsetwinsize(&master, winsize(size)).expect("its size");
        let copy = || slave.try_clone().expect("a copy");
        let mut leading = leading(command, is_leader);
        let leader = leading.stdin(copy()).stdout(copy()).stderr(copy()).spawn();
        // Its own copies of the other end would keep this one open.
        drop((leading, slave));
        let master = Arc::new(Mutex::new(Some(Arc::new(master))));
        let config = Config { scrolling_history: HISTORY, ..Config::default() };
        let window = Arc::new(Mutex::new(Window {
            term: Term::new(config, &size, Answers(Arc::clone(&master))),
            parser: Processor::new(),
            shown: Vec::new(),
        }));
        let gate = Arc::new(Mutex::new(()));
        let reading = std::thread::spawn({
            let (master, window, gate) = (Arc::clone(&master), Arc::clone(&window), Arc::clone(&gate));
            move || read(&master, &window, &gate)
        });
        let leader = leader.expect("the program starts");
        Self { leader, is_leader, master, window, gate, reading: Some(reading) }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap()
    }

    /// The program's pid.
    ///
    /// # Panics
    /// When it does not start, or has ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        let leader = self.leader.id();
        if self.is_leader {
            return leader;
        }
        until("the program", BOUND, || children(leader).first().copied())
    }

    /// Nobody reads what is written to the terminal as long as this is held, as when a person stops it with Ctrl-S.
    ///
    /// # Panics
    /// Never in practice.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap()
    }

    /// All that was written to the terminal so far, as it came.
    #[must_use]
    pub fn shown(&self) -> String {
        let shown = String::from_utf8_lossy(&self.window().shown).into_owned();
        // Of our own shell.
        shown.split_once(ENDED).map(|(shown, _)| shown.to_owned()).unwrap_or(shown)
    }

    /// The rows that a person sees now, from the top, without the blanks at their ends; one string per row of the
    /// window.
    #[must_use]
    pub fn screen(&self) -> Vec<String> {
        self.window().rows(0)
    }

    /// The rows that a person sees, as one text.
    #[must_use]
    pub fn text(&self) -> String {
        self.screen().join("\n")
    }

    /// What scrolled out of the window, and then [`screen`](Self::screen).
    #[must_use]
    pub fn scrolled(&self) -> Vec<String> {
        let window = self.window();
        let history = window.term.grid().history_size();
        window.rows(history)
    }

    /// Where the cursor is.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        let window = self.window();
        let point = window.term.grid().cursor.point;
        Cursor {
            row: usize::try_from(point.line.0).unwrap_or_default(),
            column: point.column.0,
            visible: window.term.mode().contains(TermMode::SHOW_CURSOR),
        }
    }

    /// Whether a full-screen program has the window.
    #[must_use]
    pub fn is_alternate(&self) -> bool {
        self.window().term.mode().contains(TermMode::ALT_SCREEN)
    }

    /// Whether rows wrap at the edge of the window, as a shell expects.
    #[must_use]
    pub fn wraps(&self) -> bool {
        self.window().term.mode().contains(TermMode::LINE_WRAP)
    }

    /// Whether what is typed is shown and comes as lines, as a shell expects.
    ///
    /// # Panics
    /// When the terminal does not tell.
    #[must_use]
    pub fn is_cooked(&self) -> bool {
        let master = self.master.lock().unwrap().clone().expect("an open window");
        let modes = tcgetattr(&master).expect("its modes").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Gives the window another size; rows are wrapped again, and the program is told (SIGWINCH).
    ///
    /// # Panics
    /// When that is refused.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Size { rows, columns };
        let mut window = self.window();
        window.term.resize(size);
        if let Some(master) = &*self.master.lock().unwrap() {
            tcsetwinsize(master, winsize(size)).expect("its size");
        }
    }

    /// Types this, keys as a terminal sends them: `\x03` is Ctrl-C, `\r` Enter, `\x1b[A` the arrow up.
    ///
    /// # Panics
    /// When the terminal does not take it.
    pub fn keys(&self, keys: &str) {
        write_all(&self.master, keys.as_bytes());
    }

    /// Sends the program a signal.
    pub fn send(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Closes the window: the program gets SIGHUP, and what it writes is refused.
    ///
    /// # Panics
    /// Never in practice.
    pub fn close_window(&mut self) {
        *self.master.lock().unwrap() = None;
        if let Some(reading) = self.reading.take() {
            reading.join().expect("the reader");
        }
    }

    /// Waits until the screen is as wanted; gives what `look` gives.
    ///
    /// # Panics
    /// When it does not become so.
    pub fn until_screen<T>(&self, what: &str, mut look: impl FnMut(&[String]) -> Option<T>) -> T {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            // Asked before: what it wrote at its end is looked at.
            let has_ended = String::from_utf8_lossy(&self.window().shown).contains(ENDED);
            let screen = self.screen();
            if let Some(seen) = look(&screen) {
                return seen;
            }
            assert!(
                !has_ended && std::time::Instant::now() < deadline,
                "not on the screen: {what}\n{}\n{}",
                screen.join("\n"),
                self.scrolled().join("\n"),
            );
            // poll: what the emulator shows
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until this text is somewhere on the screen.
    ///
    /// # Panics
    /// When it does not come.
    pub fn until_text(&self, text: &str) {
        self.until_screen(text, |rows| rows.join("\n").contains(text).then_some(()));
    }

    /// Waits for the program's end and all it wrote; gives its exit code. The terminal stays, and the shell in it, until
    /// this is dropped.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn wait(&mut self) -> Option<i32> {
        self.wait_within(BOUND)
    }

    /// The same within this time.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn wait_within(&mut self, bound: Duration) -> Option<i32> {
        if self.is_leader {
            return until("the end", bound, || self.leader.try_wait().expect("its state")).code();
        }
        until(&format!("the end; {}", self.text()), bound, || {
            let shown = String::from_utf8_lossy(&self.window().shown).into_owned();
            let (_, status) = shown.split_once(ENDED)?;
            let (status, _) = status.split_once('\u{7}')?;
            Some(status.parse::<i32>().expect("an exit status"))
        })
        .into()
    }

    /// Waits for its end; gives its exit code and all it wrote.
    ///
    /// # Panics
    /// When it does not end in time.
    #[must_use]
    pub fn finish(mut self) -> (Option<i32>, String) {
        let code = self.wait();
        (code, self.shown())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Ok(None) = self.leader.try_wait() {
            if !self.is_leader {
                children(self.leader.id()).into_iter().for_each(|pid| send(pid, Signal::KILL));
            }
            let _ = self.leader.kill();
            let _ = self.leader.wait();
        }
        if let Ok(mut master) = self.master.lock() {
            *master = None;
        }
    }
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal").field("leader", &self.leader).finish_non_exhaustive()
    }
}

impl Window {
    /// Rows from so many above the window on.
    fn rows(&self, above: usize) -> Vec<String> {
        let grid = self.term.grid();
        let (above, below) = (i32::try_from(above).unwrap_or(i32::MAX), grid.screen_lines());
        let row = |line: i32| {
            let mut text = String::new();
            for column in 0..grid.columns() {
                let cell = &grid[Line(line)][Column(column)];
                if cell.flags.intersects(Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER) {
                    continue;
                }
                text.push(cell.c);
                text.extend(cell.zerowidth().unwrap_or_default());
            }
            text.trim_end().to_owned()
        };
        (-above..i32::try_from(below).unwrap_or(i32::MAX)).map(row).collect()
    }
}

fn winsize(size: Size) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// The program, or the shell above it, as the leader of a session that its stdin controls.
fn leading(command: &Command, is_leader: bool) -> Command {
    let mut leading = Command::new("setsid");
    // Whoever started the tests may have these ignored, and a shell cannot change that.
    leading.args(["--ctty", "env", "--default-signal=INT,QUIT,HUP,TERM"]);
    if !is_leader {
        leading.args(["sh", "-c", SHELL, "sh"]);
    }
    leading.arg(command.get_program()).args(command.get_args());
    leading.env_clear().env("TERM", "xterm-256color");
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            leading.env(name, value);
        }
    }
    if let Some(dir) = command.get_current_dir() {
        leading.current_dir(dir);
    }
    leading
}

fn children(pid: u32) -> Vec<u32> {
    let file = format!("/proc/{pid}/task/{pid}/children");
    let list = std::fs::read_to_string(file).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Reads until the end, or until the window is closed.
fn read(master: &Master, window: &Mutex<Window>, gate: &Mutex<()>) {
    let mut buffer = [0; 4096];
    // A window that was closed reads nothing more.
    while let Some(master) = { master.lock().unwrap().clone() } {
        drop(gate.lock().unwrap());
        let mut ready = [PollFd::new(&master, PollFlags::IN)];
        let tick = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        if poll(&mut ready, Some(&tick)).expect("a wait") == 0 {
            continue;
        }
        // The end of a pseudo-terminal is an error.
        let Ok(count @ 1..) = rustix::io::read(&master, &mut buffer) else { return };
        let mut window = window.lock().unwrap();
        let window = &mut *window;
        window.shown.extend_from_slice(&buffer[..count]);
        window.parser.advance(&mut window.term, &buffer[..count]);
    }
}
