//! L16: numbers without a gap, nothing shown before its commit, deltas merged.

use std::sync::Arc;

use offspring_protocol::{Event, SessionId, event::TextDelta};
use offspring_sessions::{Answer, MAX_REPEATED_BYTES, RunError, Scope, StartedRun};
use proptest::prelude::*;

use crate::world::*;

/// The text and the thoughts of a session, and the longest delta, as the log has them.
async fn said(world: &World, root: &SessionId, session: &SessionId) -> (String, String, usize) {
    let (mut text, mut thought, mut longest) = (String::new(), String::new(), 0);
    for line in log(&world.manager, root).await.into_iter().filter(|line| line.session == *session) {
        match line.event.parse().unwrap() {
            Event::TextDelta(delta) => {
                longest = longest.max(delta.text.len());
                text += &delta.text;
            }
            Event::ThinkingDelta(delta) => thought += &delta.text,
            _ => {}
        }
    }
    (text, thought, longest)
}

async fn settled(run: &StartedRun) {
    run.context.record_process("settled".to_owned()).await.unwrap();
}

on_stores! {
    async fn a_long_answer_is_kept_once_and_read_whole(world) {
        let root = world.root().await;
        let id = root.context.session().id.clone();
        let piece = "a line of it\n".repeat(100);
        let answer = piece.repeat(60);
        assert!(answer.len() > MAX_REPEATED_BYTES);
        root.context.emit(text("of another run")).await.unwrap();
        root.end.finish(Ok("short".into())).await.unwrap();
        assert_eq!(world.manager.answer(&id).await.unwrap().as_deref(), Some("short"));

        let root = world.manager.resume_root(&id).await.unwrap().start("go").await.unwrap();
        for _ in 0..60 {
            root.context.emit(text(&piece)).await.unwrap();
        }
        assert_eq!(root.context.streamed(MAX_REPEATED_BYTES).await.unwrap(), None, "that is repeated as ever");
        let message = root.context.streamed(answer.len()).await.unwrap();
        assert!(message.is_some());
        assert_eq!(world.manager.answer(&id).await.unwrap(), None, "it has not ended");
        root.end.finish(Ok(Answer { text: answer.clone(), message })).await.unwrap();
        for manager in [world.manager.clone(), world.reloaded()] {
            assert_eq!(manager.answer(&id).await.unwrap().as_ref(), Some(&answer));
        }
        let lines = log(&world.manager, &id).await;
        let longest = lines.iter().map(|line| line.event.data().get().len()).max();
        assert!(longest < Some(MAX_REPEATED_BYTES), "{longest:?}");

        let failed = world.manager.resume_root(&id).await.unwrap().start("again").await.unwrap();
        failed.end.finish(Err(RunError::failed("x", "no"))).await.unwrap();
        assert_eq!(world.manager.answer(&id).await.unwrap(), None);
    }

    async fn l16_nothing_is_shown_before_its_commit(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        settled(&root).await;
        let mut bus = world.manager.subscribe(Scope::All);
        world.store.hold();
        root.context.emit(text("secret")).await.unwrap();
        world.store.held_up(1).await;
        let hears = futures_util::FutureExt::now_or_never(bus.recv());
        assert!(hears.is_none(), "nobody hears of it yet");
        assert!(!log(&world.manager, &root_id).await.iter().any(|line| line.event.kind() == "text_delta"));
        world.store.let_go();
        let heard = bus.recv().await.unwrap().unwrap();
        assert_eq!(log(&world.manager, &root_id).await.last().unwrap().seq, heard.seq);
    }

    async fn l16_what_waits_while_a_commit_is_in_flight_is_merged_and_committed_together(world) {
        let root = world.root().await;
        let root_id = root.context.session().id.clone();
        let other = child_of(&root, "a").await;
        settled(&other).await;
        let before = log(&world.manager, &root_id).await.len();
        world.store.hold();
        root.context.emit(text("first")).await.unwrap();
        world.store.held_up(1).await;
        let commits = world.store.commits();
        for _ in 0..20 {
            root.context.emit(text("ab")).await.unwrap();
        }
        root.context.emit(Event::ThinkingDelta(TextDelta { text: "hm".into() })).await.unwrap();
        root.context.emit(text("cd")).await.unwrap();
        other.context.emit(text("xx")).await.unwrap();
        root.context.emit(text("ef")).await.unwrap();
        for _ in 0..5 {
            root.context.emit(text(&"y".repeat(1_500))).await.unwrap();
        }
        root.context.emit(text(&"z".repeat(9_000))).await.unwrap();
        world.store.let_go();
        settled(&root).await;
        assert!(world.store.commits() <= commits + 3, "one for the first, one for all that waited");
        let lines: Vec<_> = log(&world.manager, &root_id).await.split_off(before);
        let lengths: Vec<usize> = lines.iter().map(|line| match line.event.parse().unwrap() {
            Event::TextDelta(delta) | Event::ThinkingDelta(delta) => delta.text.len(),
            other => panic!("{other:?}"),
        }).collect();
        // Only neighbours of one run and kind, up to 4 KiB; what is longer by itself stays whole.
        assert_eq!(lengths, [5, 40, 2, 2, 2, 2 + 3_000, 3_000, 1_500, 9_000]);
    }

    async fn l16_numbers_go_on_after_a_restart(world) {
        let [r, _, b, _] = world.family().await;
        let last = log(&world.manager, &r).await.len() as u64;
        let again = world.reloaded();
        let run = again.resume_child(&b).await.unwrap().start("x").await.unwrap();
        run.end.finish(Ok("x".into())).await.unwrap();
        let seqs: Vec<u64> = log(&again, &r).await.iter().map(|line| line.seq).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
        assert!(seqs.len() as u64 > last);
    }

    async fn l16_a_root_may_end_with_the_stated_durability_in_one_commit(world) {
        let root = world.root().await;
        settled(&root).await;
        let commits = world.store.commits();
        root.end.finish(Ok("x".into())).await.unwrap();
        assert_eq!(world.store.commits(), commits + 1);
    }

    async fn t11_a_slow_subscriber_is_told_and_nobody_else_is_harmed(world) {
        use offspring_sessions::QueueLimits;
        let root = world.root().await;
        settled(&root).await;
        let few = QueueLimits { items: 3, bytes: 1 << 20 };
        let mut slow = world.manager.bus().subscribe(Scope::All, few);
        let mut well = world.manager.subscribe(Scope::Subtree(root.context.session().id.clone()));
        for n in 0..10 {
            root.context.emit(tokens(&format!("m{n}"), 1)).await.unwrap();
        }
        settled(&root).await;
        for n in 0..10 {
            assert_eq!(well.recv().await.unwrap().unwrap().seq, 3 + n);
        }
        let mut cursor = 0;
        for n in 0..3 {
            cursor = slow.recv().await.unwrap().unwrap().seq;
            assert_eq!(cursor, 3 + n);
        }
        assert_eq!(slow.recv().await.unwrap_err().missed, 7);
        // Nothing is lost: it reads on from where it was.
        let mut follow = world.manager.follow(&root.context.session().id, cursor + 1);
        assert_eq!(follow.next().await.unwrap().unwrap().seq, cursor + 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Any interleaving of runs, kinds and commits in flight: numbers without a gap, each session's words
    /// whole and in order, the bus equal to the log.
    #[test]
    fn l16_any_interleaving_gives_numbers_without_a_gap_and_each_ones_words_in_order(
        steps in prop::collection::vec((0_usize..4, 0_u8..6, 1_usize..3_000), 1..80)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let world = World::memory();
            let mut bus = world.manager.subscribe(Scope::All);
            let root = world.root().await;
            let root_id = root.context.session().id.clone();
            let mut runs = vec![root];
            for n in 1..4 {
                runs.push(child_of(&runs[0], &format!("n{n}")).await);
            }
            let mut expected = vec![(String::new(), String::new()); 4];
            for (at, step, size) in steps {
                match step {
                    0 | 1 => {
                        let word = format!("{size}:").repeat(size / 5 + 1);
                        expected[at].0 += &word;
                        runs[at].context.emit(text(&word)).await.unwrap();
                    }
                    2 => {
                        expected[at].1 += "hm";
                        runs[at].context.emit(Event::ThinkingDelta(TextDelta { text: "hm".into() })).await.unwrap();
                    }
                    3 => {
                        world.store.hold();
                        tokio::task::yield_now().await;
                    }
                    4 => {
                        world.store.let_go();
                        tokio::task::yield_now().await;
                    }
                    _ => tokio::task::yield_now().await,
                }
            }
            world.store.let_go();
            let sessions: Vec<_> = runs.iter().map(|run| run.context.session().id.clone()).collect();
            while let Some(run) = runs.pop() {
                run.end.finish(Ok("x".into())).await.unwrap();
            }
            for (session, (text, thought)) in sessions.iter().zip(&expected) {
                let (said_text, said_thought, longest) = said(&world, &root_id, session).await;
                assert_eq!((&said_text, &said_thought), (text, thought));
                assert!(longest <= 4 << 10);
            }
            for (at, line) in log(&world.manager, &root_id).await.into_iter().enumerate() {
                assert_eq!(line.seq, at as u64 + 1);
                let heard = bus.recv().await.unwrap().unwrap();
                assert_eq!((heard.seq, &heard.session.id, heard.event.data().get()),
                    (line.seq, &line.session, line.event.data().get()));
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l16_four_threads_that_stream_get_numbers_without_a_gap() {
    let world = Arc::new(World::memory());
    let root = world.root().await;
    let root_id = root.context.session().id.clone();
    let mut tasks = Vec::new();
    for n in 0..4 {
        let run = child_of(&root, &format!("n{n}")).await;
        tasks.push(tokio::spawn(async move {
            for word in 0..200 {
                run.context.emit(text(&format!("{word},"))).await.unwrap();
            }
            let id = run.context.session().id.clone();
            run.end.finish(Ok("x".into())).await.unwrap();
            id
        }));
    }
    let expected: String = (0..200).map(|word| format!("{word},")).collect();
    for task in tasks {
        let session = task.await.unwrap();
        assert_eq!(said(&world, &root_id, &session).await.0, expected);
    }
    root.end.finish(Ok("x".into())).await.unwrap();
    let seqs: Vec<u64> = log(&world.manager, &root_id).await.iter().map(|line| line.seq).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}
