//! A pseudo-terminal: what a person would get to see.

use std::{
    fs::File,
    io::Read,
    os::unix::ffi::OsStrExt,
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::{processes::send, until};

/// A program with a terminal as its stdin, stdout and stderr.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
    reading: JoinHandle<()>,
}

impl Terminal {
    /// Starts a program in a window of this size.
    ///
    /// # Panics
    /// When there is no pseudo-terminal to be had.
    #[must_use]
    pub fn start(mut command: Command, rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).expect("access to it");
        unlockpt(&master).expect("its other end");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let slave = File::options().read(true).write(true).open(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let slave = slave.expect("its other end");
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).expect("its size");
        let copy = || slave.try_clone().expect("a copy");
        let child = command.env("TERM", "xterm").stdin(copy()).stdout(copy()).stderr(slave).spawn();
        // Its own copies of the other end would keep this one open.
        drop(command);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&shown);
        let reading = std::thread::spawn(move || {
            let mut master = File::from(master);
            let mut buffer = [0; 4096];
            // The end of a pseudo-terminal is an error.
            while let Ok(read @ 1..) = master.read(&mut buffer) {
                kept.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Self { child: child.expect("the program starts"), shown, reading }
    }

    /// What was written to the terminal so far.
    ///
    /// # Panics
    /// Never in practice.
    #[must_use]
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Sends a signal.
    pub fn send(&self, signal: rustix::process::Signal) {
        send(self.child.id(), signal);
    }

    /// Waits for its end; gives its exit code and all it wrote.
    ///
    /// # Panics
    /// When it does not end in time.
    #[must_use]
    pub fn finish(mut self) -> (Option<i32>, String) {
        let status = until("the end", Duration::from_secs(60), || self.child.try_wait().expect("its state"));
        self.reading.join().expect("the reader");
        let shown = String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned();
        (status.code(), shown)
    }
}
