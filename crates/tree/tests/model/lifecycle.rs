use std::collections::HashMap;

use offspring_protocol::{Outcome, RunId, RunState, SessionState};
use offspring_tree::lifecycle::{
    Counters, EARLIER_RUNS, EpochChange, Epochs, OpenError, Opened, Runs, Signal, Transition,
};
use proptest::{prelude::*, sample::select};

use crate::{cases, session};

#[derive(Debug, Clone)]
enum Step {
    Open(u32),
    Observe(u32, Signal),
    /// A signal for the run opened last, so that histories get somewhere.
    Latest(Signal),
}

fn outcome() -> impl Strategy<Value = Outcome> {
    select(&[Outcome::Completed, Outcome::Failed, Outcome::Cancelled, Outcome::Interrupted][..])
}

fn signal() -> impl Strategy<Value = Signal> {
    prop_oneof![Just(Signal::Started), Just(Signal::Event), outcome().prop_map(Signal::Terminal)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..60_u32).prop_map(Step::Open),
        2 => (0..60_u32, signal()).prop_map(|(run, signal)| Step::Observe(run, signal)),
        4 => signal().prop_map(Step::Latest),
    ];
    prop::collection::vec(step, 1..120)
}

fn run(n: u32) -> RunId {
    RunId::new(format!("run_{n}")).unwrap()
}

/// Every run ever opened with its state.
#[derive(Default)]
struct Naive {
    runs: Vec<(u32, RunState)>,
    ended: Vec<Outcome>,
    counters: Counters,
}

impl Naive {
    fn known(&mut self, n: u32) -> Option<&mut RunState> {
        self.runs.iter_mut().rev().take(EARLIER_RUNS + 1).find(|(known, _)| *known == n).map(|(_, s)| s)
    }

    fn open_run(&self) -> Option<(u32, RunState)> {
        self.runs.iter().copied().find(|(_, state)| state.is_open())
    }

    fn open(&mut self, n: u32) -> Result<Opened, OpenError> {
        if let Some(&mut state) = self.known(n) {
            self.counters.duplicates += 1;
            return Err(OpenError::Duplicate { run: run(n), state });
        }
        if let Some((open, state)) = self.open_run() {
            return Err(OpenError::StillOpen { open: run(open), state });
        }
        self.runs.push((n, RunState::Pending));
        Ok(Opened { ordinal: u32::try_from(self.runs.len()).unwrap() })
    }

    fn observe(&mut self, n: u32, signal: Signal) -> Transition {
        let Some(state) = self.known(n) else {
            self.counters.unknown += 1;
            return Transition::UnknownRun;
        };
        let from = *state;
        let to = match signal {
            Signal::Event => from,
            Signal::Started => RunState::Running,
            Signal::Terminal(outcome) => RunState::Ended(outcome),
        };
        if !from.is_open() {
            return if matches!(signal, Signal::Terminal(_)) {
                self.counters.duplicates += 1;
                Transition::Duplicate
            } else {
                self.counters.late += 1;
                Transition::Late
            };
        }
        if signal == Signal::Event {
            return Transition::Unchanged;
        }
        if from == to {
            self.counters.duplicates += 1;
            return Transition::Duplicate;
        }
        *state = to;
        self.ended.extend(to.outcome());
        Transition::Applied { from, to }
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn l12_runs_agree_with_a_list_of_every_run(steps in steps()) {
        let mut runs = Runs::default();
        let mut naive = Naive::default();
        for step in steps {
            match step {
                Step::Open(n) => prop_assert_eq!(runs.open(run(n)), naive.open(n)),
                Step::Observe(n, signal) => {
                    prop_assert_eq!(runs.observe(&run(n), signal), naive.observe(n, signal));
                }
                Step::Latest(signal) => {
                    if let Some(&(n, _)) = naive.runs.last() {
                        prop_assert_eq!(runs.observe(&run(n), signal), naive.observe(n, signal));
                    }
                }
            }
            let open = naive.open_run();
            prop_assert_eq!(runs.open_run().map(|(id, state)| (id.clone(), state)), open.map(|(n, s)| (run(n), s)));
            prop_assert_eq!(runs.state() == SessionState::Running, open.is_some());
            prop_assert_eq!(runs.last_outcome(), naive.ended.last().copied());
            prop_assert_eq!(runs.ordinal() as usize, naive.runs.len());
            prop_assert_eq!(runs.counters(), naive.counters);
        }
    }

    #[test]
    fn l12_epochs_agree_with_a_list_per_child(
        steps in prop::collection::vec((0..4_usize, prop::option::of(prop::option::of(outcome()))), 1..80)
    ) {
        let children = ["a", "b", "c", "d"].map(session);
        let mut epochs = Epochs::default();
        let mut naive: HashMap<usize, Vec<Option<Outcome>>> = HashMap::new();
        let mut counters = Counters::default();
        for (child, what) in steps {
            let runs = naive.entry(child).or_default();
            let epoch = u32::try_from(runs.len()).unwrap();
            let id = &children[child];
            let last = runs.last().copied();
            match what {
                None if last == Some(None) => {
                    counters.duplicates += 1;
                    prop_assert_eq!(epochs.epoch_started(id), EpochChange::Duplicate { epoch });
                }
                None => {
                    runs.push(None);
                    prop_assert_eq!(epochs.epoch_started(id), EpochChange::Opened { epoch: epoch + 1 });
                }
                Some(end) => {
                    let change = match end {
                        Some(outcome) => epochs.epoch_finished(id, outcome),
                        None => epochs.epoch_event(id),
                    };
                    prop_assert_eq!(change, match (last, end) {
                        (None, _) => {
                            counters.unknown += 1;
                            EpochChange::Unknown
                        }
                        (Some(None), None) => EpochChange::Within { epoch },
                        (Some(None), Some(outcome)) => {
                            *runs.last_mut().unwrap() = end;
                            EpochChange::Ended { epoch, outcome }
                        }
                        (Some(Some(_)), Some(_)) => {
                            counters.duplicates += 1;
                            EpochChange::Duplicate { epoch }
                        }
                        (Some(Some(_)), None) => {
                            counters.late += 1;
                            EpochChange::Late { epoch }
                        }
                    });
                }
            }
            prop_assert_eq!(epochs.counters(), counters);
            let open = naive.values().filter(|runs| runs.last() == Some(&None)).count();
            prop_assert_eq!(epochs.open().count(), open);
        }
    }
}
