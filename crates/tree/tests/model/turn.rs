use offspring_protocol::{MessageId, SessionState};
use offspring_tree::{
    Turn,
    turn::{RootEventKind, TurnEnd, TurnStep},
};
use proptest::{prelude::*, sample::select};

use crate::{cases, session};

#[derive(Debug, Clone, Copy)]
enum What {
    Receipt(usize),
    Text(&'static str),
    Reason(&'static str),
    Other,
    Idle,
    Running,
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        (0..2_usize).prop_map(What::Receipt),
        select(&["x", "y", ""][..]).prop_map(What::Text),
        select(&["completed", "compaction"][..]).prop_map(What::Reason),
        Just(What::Other),
        Just(What::Idle),
        Just(What::Running),
    ]
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn t12_t13_a_turn_is_what_the_root_says_between_the_receipt_and_the_next_idle(
        history in prop::collection::vec((select(&["r", "c", "d"][..]), what()), 0..40)
    ) {
        let messages = ["m0", "m1"].map(|id| MessageId::new(id).unwrap());
        let mut turn = Turn::new(session("r"), messages[0].clone());
        let steps: Vec<_> = history.iter().map(|&(who, what)| {
            let who = session(who);
            match what {
                What::Receipt(n) => turn.event(&who, RootEventKind::Receipt { ids: &messages[n..=n] }),
                What::Text(text) => turn.event(&who, RootEventKind::AssistantText(text)),
                What::Reason(reason) => turn.event(&who, RootEventKind::TurnEnd(reason)),
                What::Other => turn.event(&who, RootEventKind::Other),
                What::Idle => turn.status(&who, SessionState::Idle),
                What::Running => turn.status(&who, SessionState::Running),
            }
        }).collect();

        let receipt = history.iter().position(|entry| matches!(entry, ("r", What::Receipt(0))));
        let begin = receipt.unwrap_or(history.len());
        let idle = history.iter().skip(begin).position(|entry| matches!(entry, ("r", What::Idle)));
        let end = idle.map_or(history.len(), |idle| begin + idle);
        for (at, ((who, what), step)) in history.iter().zip(steps).enumerate() {
            let is_event = !matches!(what, What::Idle | What::Running);
            prop_assert_eq!(step, match at {
                _ if at < begin => TurnStep::BeforeReceipt,
                _ if at > end => TurnStep::AfterEnd,
                _ if at == end => TurnStep::Ended(TurnEnd::Idle),
                _ if *who == "r" && is_event => TurnStep::Collected,
                _ => TurnStep::Observed,
            });
        }
        let (mut text, mut reason) = (None, None);
        for (who, what) in history.get(begin..end).unwrap_or_default() {
            match what {
                What::Text(said) if *who == "r" => text = Some(*said),
                What::Reason(said) if *who == "r" => reason = Some(*said),
                _ => {}
            }
        }
        prop_assert_eq!((turn.final_response(), turn.finish_reason()), (text, reason));
        prop_assert_eq!(turn.ended(), idle.map(|_| TurnEnd::Idle));
        prop_assert_eq!(turn.is_received(), receipt.is_some());
    }
}
