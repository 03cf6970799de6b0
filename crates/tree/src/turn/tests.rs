use super::*;

fn id(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

fn message(id: &str) -> MessageId {
    MessageId::new(id).unwrap()
}

fn turn() -> Turn {
    Turn::new(id("r"), message("m"))
}

/// A turn whose receipt has come.
fn open() -> Turn {
    let mut turn = turn();
    let ids = [message("other"), message("m")];
    assert_eq!(turn.event(&id("r"), RootEventKind::Receipt { ids: &ids }), TurnStep::Collected);
    turn
}

#[test]
fn t12_only_events_of_the_root_itself_enter_the_turn() {
    let mut turn = open();
    let kinds = [
        RootEventKind::AssistantText("text"),
        RootEventKind::TurnEnd("completed"),
        RootEventKind::Receipt { ids: &[] },
        RootEventKind::Other,
    ];
    for kind in kinds {
        assert_eq!(turn.event(&id("c"), kind), TurnStep::Observed);
    }
    assert_eq!((turn.final_response(), turn.finish_reason()), (None, None));
    for kind in kinds {
        assert_eq!(turn.event(&id("r"), kind), TurnStep::Collected);
    }
    assert_eq!((turn.final_response(), turn.finish_reason()), (Some("text"), Some("completed")));
    assert_eq!((turn.root(), turn.ended()), (&id("r"), None));
}

#[test]
fn t12_the_root_s_last_message_is_the_answer() {
    let mut turn = open();
    for (text, reason) in [("half", "compaction"), ("final", "completed")] {
        turn.event(&id("r"), RootEventKind::AssistantText(text));
        turn.event(&id("r"), RootEventKind::TurnEnd(reason));
    }
    assert_eq!(turn.status(&id("r"), SessionState::Idle), TurnStep::Ended(TurnEnd::Idle));
    assert_eq!((turn.final_response(), turn.finish_reason()), (Some("final"), Some("completed")));
}

#[test]
fn t12_a_descendant_s_text_never_becomes_the_root_s_answer_in_any_order_of_arrival() {
    // The root's text and its idle stay in their order; the child's five are put in at every place.
    for places in 0..3_usize.pow(5) {
        let mut turn = open();
        let mut place = places;
        let places: Vec<_> = (0..5)
            .map(|_| {
                let here = place % 3;
                place /= 3;
                here
            })
            .collect();
        let child = |turn: &mut Turn, at: usize| {
            for n in (0..5).filter(|&n| places[n] == at) {
                let step = match n {
                    0 => turn.event(&id("c"), RootEventKind::AssistantText("child")),
                    1 => turn.event(&id("c"), RootEventKind::TurnEnd("child")),
                    2 => turn.status(&id("c"), SessionState::Idle),
                    3 => turn.event(&id("c"), RootEventKind::Receipt { ids: &[message("m")] }),
                    _ => turn.observe(TurnInput::Descendant { session: &id("c") }),
                };
                assert_eq!(step, if at == 2 { TurnStep::AfterEnd } else { TurnStep::Observed });
            }
        };
        child(&mut turn, 0);
        turn.event(&id("r"), RootEventKind::AssistantText("root"));
        turn.event(&id("r"), RootEventKind::TurnEnd("completed"));
        child(&mut turn, 1);
        assert_eq!(turn.status(&id("r"), SessionState::Idle), TurnStep::Ended(TurnEnd::Idle));
        child(&mut turn, 2);
        assert_eq!((turn.final_response(), turn.finish_reason()), (Some("root"), Some("completed")));
    }
}

#[test]
fn t13_a_turn_begins_with_the_receipt_of_its_own_prompt() {
    let mut turn = turn();
    let others = [message("m0"), message("mm")];
    for step in [
        turn.event(&id("r"), RootEventKind::AssistantText("stale")),
        turn.event(&id("r"), RootEventKind::TurnEnd("stale")),
        turn.event(&id("r"), RootEventKind::Receipt { ids: &others }),
        turn.event(&id("c"), RootEventKind::Receipt { ids: &[message("m")] }),
        turn.status(&id("r"), SessionState::Running),
        turn.status(&id("r"), SessionState::Idle),
        turn.status(&id("c"), SessionState::Idle),
    ] {
        assert_eq!(step, TurnStep::BeforeReceipt);
    }
    assert!(!turn.is_received() && turn.ended().is_none());
    let ids = [message("m")];
    assert_eq!(turn.event(&id("r"), RootEventKind::Receipt { ids: &ids }), TurnStep::Collected);
    assert!(turn.is_received());
    // Nothing stale is replayed into it.
    assert_eq!(turn.status(&id("r"), SessionState::Running), TurnStep::Observed);
    assert_eq!(turn.status(&id("r"), SessionState::Idle), TurnStep::Ended(TurnEnd::Idle));
    assert_eq!((turn.final_response(), turn.finish_reason()), (None, None));
}

#[test]
fn t13_a_turn_ends_at_the_next_idle_of_the_root_and_stays_ended() {
    let mut turn = open();
    assert_eq!(turn.status(&id("c"), SessionState::Idle), TurnStep::Observed);
    assert_eq!(turn.status(&id("r"), SessionState::Running), TurnStep::Observed);
    assert_eq!(turn.observe(TurnInput::RootStatus(SessionState::Idle)), TurnStep::Ended(TurnEnd::Idle));
    assert_eq!(turn.event(&id("r"), RootEventKind::AssistantText("too late")), TurnStep::AfterEnd);
    assert_eq!(turn.status(&id("r"), SessionState::Idle), TurnStep::AfterEnd);
    assert_eq!(turn.observe(TurnInput::RuntimeGone), TurnStep::AfterEnd);
    assert_eq!((turn.ended(), turn.final_response()), (Some(TurnEnd::Idle), None));
    assert!(turn.is_received());
}

#[test]
fn t13_a_runtime_that_goes_away_ends_the_turn_and_says_whether_the_prompt_was_received() {
    for (mut turn, received) in [(turn(), false), (open(), true)] {
        let end = TurnEnd::RuntimeGone { received };
        assert_eq!(turn.observe(TurnInput::RuntimeGone), TurnStep::Ended(end));
        assert_eq!((turn.ended(), turn.is_received()), (Some(end), received));
        assert_eq!(turn.status(&id("r"), SessionState::Idle), TurnStep::AfterEnd);
    }
}

#[test]
fn t13_a_turn_of_a_tree_passes_over_the_root_s_idles_and_ends_when_the_tree_is_at_rest() {
    let mut turn = Turn::with_extent(id("r"), message("m"), Extent::Tree);
    assert_eq!(turn.observe(TurnInput::TreeAtRest), TurnStep::BeforeReceipt);
    turn.event(&id("r"), RootEventKind::Receipt { ids: &[message("m")] });
    assert_eq!(turn.observe(TurnInput::TreeAtRest), TurnStep::Observed, "the root has not been idle yet");
    turn.event(&id("r"), RootEventKind::AssistantText("started a child"));
    for (state, idle) in
        [(SessionState::Idle, true), (SessionState::Running, false), (SessionState::Idle, true)]
    {
        assert_eq!(turn.status(&id("r"), state), TurnStep::Observed);
        assert_eq!(turn.is_root_idle(), idle);
    }
    turn.event(&id("r"), RootEventKind::AssistantText("the child is done"));
    assert_eq!(turn.observe(TurnInput::TreeAtRest), TurnStep::Ended(TurnEnd::TreeAtRest));
    assert_eq!((turn.final_response(), turn.is_received()), (Some("the child is done"), true));
    assert_eq!(turn.status(&id("r"), SessionState::Idle), TurnStep::AfterEnd);
    let mut short = open();
    assert_eq!(short.observe(TurnInput::TreeAtRest), TurnStep::Observed);
}
