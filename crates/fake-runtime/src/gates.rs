//! Gates: places where a play waits until somebody outside lets it go on.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// How often the directory of gates is looked at. A file that appears gives no event that every system has.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Opens the gates of a play. Clones open the same gates.
///
/// A gate that was opened stays open, so that it does not matter who comes first. Every wait at a gate has a
/// bound, which the script states (60 s unless it says otherwise).
#[derive(Debug, Clone, Default)]
pub struct Gates(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    opened: Mutex<BTreeSet<String>>,
    changed: Notify,
    directory: Option<PathBuf>,
}

impl Gates {
    /// Gates that also open when a file of their name appears in this directory.
    #[must_use]
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Self(Arc::new(Inner { directory: Some(directory.into()), ..Inner::default() }))
    }

    /// Opens a gate, for good.
    pub fn open(&self, name: &str) {
        self.0.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        self.0.changed.notify_waiters();
    }

    pub(crate) fn is_open(&self, name: &str) -> bool {
        self.0.opened.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
            || self.0.directory.as_ref().is_some_and(|directory| directory.join(name).exists())
    }

    /// Returns once the gate is open. The caller has the bound.
    pub(crate) async fn opened(&self, name: &str) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // From here on no opening is missed.
            changed.as_mut().enable();
            if self.is_open(name) {
                return;
            }
            if self.0.directory.is_some() {
                tokio::select! {
                    () = changed => {}
                    () = sleep(LOOK_EVERY) => {}
                }
            } else {
                changed.await;
            }
        }
    }
}
