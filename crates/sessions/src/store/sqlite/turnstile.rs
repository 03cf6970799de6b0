//! One writer after another, so that a busy process does not starve the others.
//!
//! SQLite's own write lock goes to whoever asks at the right moment: a process that writes without pause
//! nearly always has it. Here everybody first queues at one lock (`next`) and leaves it only when it holds
//! the other (`turn`): while one works, one other already waits first in line, and the one that worked
//! queues behind it.

use std::{
    fs::{File, TryLockError},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    fault::{INSTEAD, Place},
    owners::open_private,
};
use crate::store::StoreError;

/// The longest pause between two looks at a held lock.
const POLL: Duration = Duration::from_millis(2);
/// The first pause; short commits of others cost no more.
const FIRST_POLL: Duration = Duration::from_micros(50);

/// The two locks.
#[derive(Debug)]
pub(super) struct Turnstile {
    place: Place,
    next: File,
    turn: File,
}

/// The right to write, until dropped.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a File);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "could not give the turn to write back");
        }
    }
}

impl Turnstile {
    pub(super) fn open(place: &Place, directory: &Path) -> Result<Self, StoreError> {
        let open = |name: &str| {
            let path = directory.join(name);
            open_private(&path).map_err(|error| place.io("opening", &path, &error))
        };
        Ok(Self { place: place.clone(), next: open(".next")?, turn: open(".turn")? })
    }

    /// Waits for our turn until the deadline, then gives `None`.
    pub(super) fn enter(&self, deadline: Instant) -> Result<Option<Turn<'_>>, StoreError> {
        if !lock_until(&self.place, &self.next, deadline)? {
            return Ok(None);
        }
        let next = Turn(&self.next);
        let turn = lock_until(&self.place, &self.turn, deadline)?.then(|| Turn(&self.turn));
        drop(next);
        Ok(turn)
    }
}

/// Polls a lock: a process that was stopped while it held one must make us fail, not hang.
pub(super) fn lock_until(place: &Place, file: &File, deadline: Instant) -> Result<bool, StoreError> {
    let mut pause = FIRST_POLL;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => {
                return Err(place.unusable(format!("files beside it cannot be locked: {error}; {INSTEAD}")));
            }
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: &Path) -> Place {
        Place { path: dir.join("db"), busy_timeout: Duration::ZERO }
    }

    #[test]
    fn one_has_the_turn_and_another_stops_waiting_at_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let a = Turnstile::open(&place(dir.path()), dir.path()).unwrap();
        let b = Turnstile::open(&place(dir.path()), dir.path()).unwrap();
        let turn = a.enter(Instant::now()).unwrap();
        assert!(turn.is_some());
        assert!(b.enter(Instant::now() + Duration::from_millis(20)).unwrap().is_none());
        drop(turn);
        assert!(b.enter(Instant::now()).unwrap().is_some());
    }

    #[test]
    fn who_waits_is_let_in_before_the_one_that_just_left_comes_again() {
        let dir = tempfile::tempdir().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let hot = Turnstile::open(&place(dir.path()), dir.path()).unwrap();
        for _ in 0..20 {
            let turn = hot.enter(deadline).unwrap().unwrap();
            let (leave, left) = std::sync::mpsc::channel();
            let cold = Turnstile::open(&place(dir.path()), dir.path()).unwrap();
            let waiting = thread::spawn(move || {
                let turn = cold.enter(deadline).unwrap();
                left.recv().unwrap();
                turn.is_some()
            });
            // Until it stands first in line.
            while hot.next.try_lock().is_ok() {
                hot.next.unlock().unwrap();
                assert!(Instant::now() < deadline);
                thread::yield_now();
            }
            drop(turn);
            assert!(hot.enter(Instant::now()).unwrap().is_none(), "it came in before the one that waited");
            leave.send(()).unwrap();
            assert!(waiting.join().unwrap());
        }
    }
}
