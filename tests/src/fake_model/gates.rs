//! Gates: a request stands at one until it is opened, and a test sees that it stands there.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

/// No request stands at a gate for longer, and nobody waits longer for one to arrive.
pub const GATE_BOUND: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    is_open: bool,
    /// How many requests have come to it so far.
    arrived: u64,
}

/// All gates, by name. One that nobody named before is closed.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<HashMap<String, watch::Sender<State>>>);

impl Gates {
    fn all(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<State>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut State)) -> watch::Receiver<State> {
        let mut gates = self.all();
        let gate = gates.entry(name.to_owned()).or_default();
        gate.send_modify(change);
        gate.subscribe()
    }

    /// Lets everybody through, now and later.
    pub(super) fn open(&self, name: &str) {
        self.change(name, |state| state.is_open = true);
    }

    /// Holds up what comes from now on.
    pub(super) fn close(&self, name: &str) {
        self.change(name, |state| state.is_open = false);
    }

    /// Stands at the gate until it is open.
    pub(super) async fn pass(&self, name: &str) {
        let mut gate = self.change(name, |state| state.arrived += 1);
        let _ = tokio::time::timeout(GATE_BOUND, gate.wait_for(|state| state.is_open)).await;
    }

    /// Until so many have come to it; whether they came in time.
    pub(super) async fn arrived(&self, name: &str, count: u64) -> bool {
        let mut gate = self.change(name, |_| {});
        let arrived = gate.wait_for(|state| state.arrived >= count);
        tokio::time::timeout(GATE_BOUND, arrived).await.is_ok_and(|seen| seen.is_ok())
    }
}
