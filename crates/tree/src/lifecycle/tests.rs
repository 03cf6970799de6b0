use super::*;

fn run(id: &str) -> RunId {
    RunId::new(id).unwrap()
}

fn running(id: &str) -> Runs {
    let mut runs = Runs::default();
    runs.open(run(id)).unwrap();
    assert_eq!(runs.observe(&run(id), Signal::Started), applied(RunState::Pending, RunState::Running));
    runs
}

fn applied(from: RunState, to: RunState) -> Transition {
    Transition::Applied { from, to }
}

const OUTCOMES: [Outcome; 4] =
    [Outcome::Completed, Outcome::Failed, Outcome::Cancelled, Outcome::Interrupted];

#[test]
fn l12_a_run_goes_from_pending_to_running_to_its_one_end() {
    for outcome in OUTCOMES {
        let mut runs = Runs::default();
        assert_eq!((runs.state(), runs.open_run(), runs.last_outcome()), (SessionState::Idle, None, None));
        assert_eq!(runs.open(run("1")), Ok(Opened { ordinal: 1 }));
        assert_eq!(runs.open_run(), Some((&run("1"), RunState::Pending)));
        assert_eq!(runs.state(), SessionState::Running);
        assert_eq!(runs.observe(&run("1"), Signal::Event), Transition::Unchanged);
        assert_eq!(runs.observe(&run("1"), Signal::Started), applied(RunState::Pending, RunState::Running));
        assert_eq!(runs.open_run(), Some((&run("1"), RunState::Running)));
        assert_eq!(runs.observe(&run("1"), Signal::Event), Transition::Unchanged);
        let end = applied(RunState::Running, RunState::Ended(outcome));
        assert_eq!(runs.observe(&run("1"), Signal::Terminal(outcome)), end);
        assert_eq!((runs.state(), runs.open_run()), (SessionState::Idle, None));
        assert_eq!((runs.last_outcome(), runs.ordinal()), (Some(outcome), 1));
        assert_eq!(runs.counters(), Counters::default());
    }
}

#[test]
fn l12_a_pending_run_can_end_without_having_worked() {
    let mut runs = Runs::default();
    runs.open(run("1")).unwrap();
    let end = applied(RunState::Pending, RunState::Ended(Outcome::Cancelled));
    assert_eq!(runs.observe(&run("1"), Signal::Terminal(Outcome::Cancelled)), end);
    assert_eq!(runs.observe(&run("1"), Signal::Started), Transition::Late);
}

#[test]
fn l12_an_ended_run_is_final() {
    for (first, second) in OUTCOMES.into_iter().flat_map(|a| OUTCOMES.map(|b| (a, b))) {
        let mut runs = running("1");
        let _ = runs.observe(&run("1"), Signal::Terminal(first));
        assert_eq!(runs.observe(&run("1"), Signal::Terminal(second)), Transition::Duplicate);
        assert_eq!(runs.observe(&run("1"), Signal::Event), Transition::Late);
        assert_eq!(runs.observe(&run("1"), Signal::Started), Transition::Late);
        assert_eq!((runs.state(), runs.last_outcome()), (SessionState::Idle, Some(first)));
        assert_eq!(runs.counters(), Counters { duplicates: 1, late: 2, unknown: 0 });
    }
}

#[test]
fn l12_runs_come_one_after_another() {
    let mut runs = running("1");
    let still_open = OpenError::StillOpen { open: run("1"), state: RunState::Running };
    assert_eq!(runs.open(run("2")), Err(still_open));
    assert_eq!(runs.counters(), Counters::default());
    let _ = runs.observe(&run("1"), Signal::Terminal(Outcome::Failed));
    assert_eq!(runs.open(run("2")), Ok(Opened { ordinal: 2 }));
    assert_eq!(runs.ordinal(), 2);
    // The outcome stays that of the last run that ended.
    assert_eq!((runs.state(), runs.last_outcome()), (SessionState::Running, Some(Outcome::Failed)));
    // A late event of the first run changes nothing of the second.
    assert_eq!(runs.observe(&run("1"), Signal::Event), Transition::Late);
    assert_eq!(runs.observe(&run("1"), Signal::Terminal(Outcome::Completed)), Transition::Duplicate);
    assert_eq!(runs.open_run(), Some((&run("2"), RunState::Pending)));
    let end = applied(RunState::Pending, RunState::Ended(Outcome::Completed));
    assert_eq!(runs.observe(&run("2"), Signal::Terminal(Outcome::Completed)), end);
    assert_eq!(runs.last_outcome(), Some(Outcome::Completed));
    let ended = OpenError::Duplicate { run: run("1"), state: RunState::Ended(Outcome::Failed) };
    assert_eq!(runs.open(run("1")), Err(ended));
}

#[test]
fn l12_earlier_runs_are_recognised_within_a_bound() {
    let mut runs = Runs::default();
    for n in 0..=EARLIER_RUNS + 1 {
        runs.open(run(&n.to_string())).unwrap();
        let _ = runs.observe(&run(&n.to_string()), Signal::Terminal(Outcome::Completed));
    }
    assert_eq!(runs.observe(&run("0"), Signal::Event), Transition::UnknownRun);
    assert_eq!(runs.observe(&run("1"), Signal::Event), Transition::Late);
    assert_eq!(runs.observe(&run("other"), Signal::Event), Transition::UnknownRun);
    assert_eq!(runs.counters(), Counters { duplicates: 0, late: 1, unknown: 2 });
    assert_eq!(runs.earlier.len(), EARLIER_RUNS);
}

#[test]
fn l12_a_loaded_session_goes_on_where_it_stood() {
    let mut runs = Runs::restored(run("7"), 7, RunState::Ended(Outcome::Interrupted));
    assert_eq!((runs.state(), runs.last_outcome()), (SessionState::Idle, Some(Outcome::Interrupted)));
    assert_eq!(runs.observe(&run("7"), Signal::Event), Transition::Late);
    assert_eq!(runs.open(run("8")), Ok(Opened { ordinal: 8 }));

    let mut runs = Runs::restored(run("7"), 7, RunState::Running);
    assert_eq!((runs.state(), runs.last_outcome()), (SessionState::Running, None));
    let end = applied(RunState::Running, RunState::Ended(Outcome::Interrupted));
    assert_eq!(runs.observe(&run("7"), Signal::Terminal(Outcome::Interrupted)), end);
}

#[test]
fn o4_a_message_a_finish_and_a_late_event_in_all_six_orders_end_completed() {
    #[derive(Clone, Copy, PartialEq)]
    enum Arrival {
        Message,
        Finish,
        ToolEvent,
    }
    use Arrival::{Finish, Message, ToolEvent};
    let orders = [
        [Message, Finish, ToolEvent],
        [Message, ToolEvent, Finish],
        [Finish, Message, ToolEvent],
        [Finish, ToolEvent, Message],
        [ToolEvent, Message, Finish],
        [ToolEvent, Finish, Message],
    ];
    for order in orders {
        let mut runs = running("1");
        let mut finished = false;
        let mut log = 0;
        for arrival in order {
            let transition = if arrival == Finish {
                finished = true;
                let step = runs.observe(&run("1"), Signal::Terminal(Outcome::Completed));
                assert_eq!(step, applied(RunState::Running, RunState::Ended(Outcome::Completed)));
                continue;
            } else {
                runs.observe(&run("1"), Signal::Event)
            };
            // Kept either way, and marked late exactly when it came after the finish.
            log += 1;
            assert_eq!(transition, if finished { Transition::Late } else { Transition::Unchanged });
        }
        assert_eq!((runs.state(), runs.last_outcome()), (SessionState::Idle, Some(Outcome::Completed)));
        assert_eq!(log, 2);
    }
}

#[test]
fn o5_a_start_sent_three_times_is_one_run_and_two_counted_duplicates() {
    let mut runs = running("1");
    for _ in 0..2 {
        assert_eq!(runs.observe(&run("1"), Signal::Started), Transition::Duplicate);
    }
    assert_eq!((runs.ordinal(), runs.counters().duplicates), (1, 2));
    // The same at the door: opening the open run again.
    let duplicate = OpenError::Duplicate { run: run("1"), state: RunState::Running };
    assert_eq!(runs.open(run("1")), Err(duplicate));
    assert_eq!((runs.ordinal(), runs.counters().duplicates), (1, 3));
    assert_eq!(runs.open_run(), Some((&run("1"), RunState::Running)));
}

#[test]
fn o5_a_finish_sent_twice_completes_once() {
    let mut runs = running("1");
    let finishes = [(); 2].map(|()| runs.observe(&run("1"), Signal::Terminal(Outcome::Completed)));
    let done = finishes.iter().filter(|step| matches!(step, Transition::Applied { .. })).count();
    assert_eq!((done, runs.counters().duplicates), (1, 1));
}

#[test]
fn l12_a_wire_without_run_ids_has_one_run_per_started_finished_epoch() {
    let [c, d, x] = ["c", "d", "x"].map(|id| SessionId::new(id).unwrap());
    let mut epochs = Epochs::default();
    assert_eq!(epochs.epoch_event(&c), EpochChange::Unknown);
    assert_eq!(epochs.epoch_finished(&c, Outcome::Completed), EpochChange::Unknown);
    assert_eq!(epochs.epoch_started(&c), EpochChange::Opened { epoch: 1 });
    assert_eq!(epochs.epoch_started(&d), EpochChange::Opened { epoch: 1 });
    assert_eq!(epochs.epoch_started(&c), EpochChange::Duplicate { epoch: 1 });
    assert_eq!(epochs.epoch_event(&c), EpochChange::Within { epoch: 1 });
    let ended = EpochChange::Ended { epoch: 1, outcome: Outcome::Failed };
    assert_eq!(epochs.epoch_finished(&c, Outcome::Failed), ended);
    assert_eq!(epochs.epoch_finished(&c, Outcome::Completed), EpochChange::Duplicate { epoch: 1 });
    assert_eq!(epochs.epoch_event(&c), EpochChange::Late { epoch: 1 });
    assert_eq!(epochs.latest(&c), Some((1, RunState::Ended(Outcome::Failed))));
    assert_eq!(epochs.open().collect::<Vec<_>>(), [&d]);
    // A re-activated child is the same session in a new run.
    assert_eq!(epochs.epoch_started(&c), EpochChange::Opened { epoch: 2 });
    assert_eq!(epochs.latest(&c), Some((2, RunState::Running)));
    assert_eq!(epochs.latest(&x), None);
    assert_eq!(epochs.counters(), Counters { duplicates: 2, late: 1, unknown: 2 });
    epochs.forget(&c);
    assert_eq!(epochs.epoch_started(&c), EpochChange::Opened { epoch: 1 });
    epochs.clear();
    assert_eq!((epochs.open().count(), epochs.latest(&d)), (0, None));
    assert_eq!(epochs.counters().unknown, 2);
    assert_eq!(size_of::<(SessionId, Epoch)>(), 24);
}
