//! `offspring watch --tui`: a tree to walk through, transcripts beside it, and the terminal as it was afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{process::Command, time::Duration};

use offspring_tests::{World, processes::SignalName as Signal, terminal::Terminal, until};

const POOL: &str = r#"
entry: lead
agents:
  lead: {type: command, command: [sh, -c, 'echo I lead; offspring task --detach 調査 "look around" >/dev/null; offspring task deep "go down" >/dev/null; echo all done']}
  調査: {type: command, command: [sh, -c, 'cat; echo; i=1; while [ $i -le 200 ]; do echo "finding $i 出力 👩‍🔬"; i=$((i+1)); done']}
  deep: {type: command, command: [sh, -c, 'offspring task leaf x; echo came back']}
  leaf: {type: command, command: [echo, a leaf]}
  live: {type: command, command: [sh, -c, 'echo begun; offspring task --detach waits x >/dev/null; echo more; until [ -e "$OFFSPRING_MANIFEST_DIR/gate" ]; do sleep 0.02; done; offspring task leaf x >/dev/null; echo opened']}
  waits: {type: command, command: [sh, -c, 'echo waiting; until [ -e "$OFFSPRING_MANIFEST_DIR/gate" ]; do sleep 0.02; done']}
  evil: {type: command, command: [sh, -c, 'printf "\033]0;title\007\033[2J\033[31mred\tand \302\233 more\n"; printf "\033[?1049l\n" >&2']}
"#;

fn world() -> World {
    let world = World::new();
    world.pool(POOL);
    world
}

/// After a run of this node.
fn ran(node: &str) -> World {
    let world = world();
    world.run(node, "the prompt", &["--quiet"]).with(0);
    world
}

fn tui(world: &World, rows: u16, columns: u16) -> Terminal {
    let terminal = Terminal::start(&world.command(&["watch", "--tui"]), rows, columns);
    terminal.until_screen("the window", |rows| rows.last().unwrap().starts_with("q quit").then_some(()));
    terminal
}

/// The rows of the transcript that stands beside the tree.
fn beside(rows: &[String]) -> Vec<&str> {
    rows.iter().filter_map(|row| row.split_once("│ ")).map(|(_, right)| right).collect()
}

/// The terminal is as a shell expects it.
fn assert_restored(terminal: &Terminal) {
    assert!(!terminal.is_alternate(), "the window was left");
    assert!(terminal.cursor().visible, "the cursor is seen: {:?}", terminal.shown());
    assert!(terminal.is_cooked(), "what is typed is shown");
    assert!(terminal.wraps(), "rows wrap");
}

#[test]
fn the_tree_is_walked_folded_and_read_and_the_terminal_is_as_it_was() {
    let world = ran("lead");
    let watch = world.command(&["watch", "--tui"]);
    let mut below = Command::new("sh");
    below.args(["-c", "echo before; exec \"$@\"", "sh"]).arg(watch.get_program()).args(watch.get_args());
    below.envs(watch.get_envs().map(|(name, value)| (name, value.unwrap())));
    let mut terminal = Terminal::start(&below, 24, 80);
    let rows = terminal.until_screen("the root's transcript", |rows| {
        beside(rows).contains(&"all done").then(|| rows.to_vec())
    });
    assert!(terminal.is_alternate() && !terminal.cursor().visible && !terminal.is_cooked());
    assert_eq!(rows[0], "lead: 4 sessions, 4 completed");
    assert!(rows[1].starts_with("✓ lead completed "), "{rows:#?}");
    assert!(rows[2].starts_with("├─ ✓ 調査 completed "), "{rows:#?}");
    assert!(rows[4].starts_with("   └─ ✓ leaf completed "), "{rows:#?}");
    assert_eq!(beside(&rows)[1..3], ["> the prompt", "I lead"]);
    assert!(rows[23].starts_with("q quit  ? help  jk walk  enter fold  PgUp/PgDn read"), "{rows:#?}");

    terminal.keys("j");
    terminal
        .until_screen("its end", |rows| (beside(rows).last() == Some(&"finding 200 出力 👩")).then_some(()));
    terminal.keys("\u{1b}[5~");
    terminal.until_screen("a page back", |rows| {
        (beside(rows).get(1) == Some(&"finding 160 出力 👩")).then_some(())
    });
    terminal.keys("g");
    terminal.until_screen("its beginning", |rows| {
        (beside(rows).get(1..3) == Some(&["> look around", "look around"])).then_some(())
    });
    terminal.until_text("… more");
    terminal.keys(" ");
    terminal
        .until_screen("a page on", |rows| (beside(rows).get(1) == Some(&"finding 19 出力 👩")).then_some(()));
    terminal.keys("G");
    terminal
        .until_screen("its end", |rows| (beside(rows).last() == Some(&"finding 200 出力 👩")).then_some(()));

    terminal.keys("\u{1b}[B\r");
    terminal.until_screen("a fold", |rows| rows[3].starts_with("└─ ✓ deep completed ").then_some(()));
    terminal.until_text("[+1]");
    terminal.until_text("came back");
    assert!(!terminal.text().contains("✓ leaf"), "{}", terminal.text());
    terminal.keys("ll");
    terminal.until_screen("the leaf", |rows| {
        beside(rows).first().is_some_and(|head| head.starts_with("── leaf ")).then_some(())
    });
    terminal.keys("kkkk");
    terminal.until_screen("the root", |rows| {
        beside(rows).first().is_some_and(|head| head.starts_with("── lead ")).then_some(())
    });
    terminal.keys("?");
    terminal.until_text("the next session");
    terminal.keys("x");
    terminal.until_text("> the prompt");
    assert!(!terminal.text().contains("the next session"));
    terminal.keys("q");
    assert_eq!(terminal.wait(), Some(0));
    assert_restored(&terminal);
    assert_eq!(terminal.screen()[..2], ["before", ""], "nothing of it stays");
}

#[test]
fn a_run_is_seen_live() {
    let world = world();
    let mut run = world.start("live", "x", &["--json"]);
    run.until_json(|line| line["event"]["data"]["text"] == "more\n");
    let mut terminal = tui(&world, 24, 90);
    let seconds = |rows: &[String]| {
        let (_, after) = rows[1].split_once("▶ live running ")?;
        after.split(' ').next()?.parse::<f64>().ok().filter(|_| after.split(' ').nth(1) == Some("s"))
    };
    let before = terminal.until_screen("two at work", |rows| {
        let is_read = beside(rows).contains(&"begun") && beside(rows).contains(&"more");
        (rows[0] == "live: 2 sessions, 2 running" && is_read).then(|| seconds(rows)).flatten()
    });
    terminal.until_screen("time", |rows| seconds(rows).filter(|now| *now > before + 0.5));
    world.write("pool/gate", "");
    terminal.until_screen("what came since", |rows| {
        let is_over = rows[0] == "live: 3 sessions, 3 completed" && beside(rows).contains(&"opened");
        (is_over && rows[1].starts_with("✓ live completed")).then_some(())
    });
    terminal.until_text("✓ leaf completed");
    let _ = run.finish().with(0);
    terminal.keys("\u{1b}");
    assert_eq!(terminal.wait(), Some(0));
    assert_restored(&terminal);
}

#[test]
fn a_small_window_and_one_that_changes() {
    let world = ran("lead");
    let mut terminal = tui(&world, 10, 40);
    terminal.until_screen("tree above, transcript below", |rows| {
        let is_right = rows[1].starts_with("✓ lead completed ")
            && rows[4].starts_with("── lead ses_")
            && rows[8] == "all done"
            && rows[9] == "q quit  ? help  jk walk  enter fold";
        is_right.then_some(())
    });
    terminal.keys("\u{1b}[F");
    terminal.until_screen("the last session", |rows| rows[3].contains("└─ ✓ leaf completed").then_some(()));
    terminal.until_text("a leaf");
    for (rows, columns) in [(24, 80), (30, 120), (6, 20), (2, 8), (1, 1), (24, 71), (10, 40)] {
        terminal.resize(rows, columns);
        let narrow = columns < 72;
        terminal.until_screen("the new size", |seen| {
            if rows < 6 {
                let title = seen[0].chars().next().unwrap_or(' ');
                return ['l', '…'].contains(&title).then_some(());
            }
            let has_footer = seen.last().unwrap().starts_with("q quit");
            let has_wall = seen[1].contains('│');
            let is_read = seen.iter().any(|row| row.ends_with("a leaf"));
            (has_footer && has_wall != narrow && is_read).then_some(())
        });
    }
    terminal.keys("\u{3}");
    assert_eq!(terminal.wait(), Some(130));
    assert_restored(&terminal);
}

#[test]
fn a_session_is_cancelled_after_a_question() {
    let world = world();
    let mut run = world.start("live", "x", &["--json"]);
    run.until_json(|line| line["event"]["data"]["text"] == "waiting\n");
    let mut terminal = tui(&world, 24, 80);
    terminal.until_text("live: 2 sessions, 2 running");
    terminal.keys("jc");
    terminal.until_text("cancel waits and all below it? y: yes");
    terminal.keys("n");
    terminal.until_text("q quit");
    assert!(terminal.text().contains("2 sessions, 2 running"));
    terminal.keys("cy");
    terminal.until_text("waits: cancelled 1 session");
    terminal.until_text("live: 2 sessions, 1 running, 1 cancelled");
    terminal.until_text("⊘ waits cancelled");
    terminal.keys("kcy");
    terminal.until_text("⊘ live cancelled");
    let _ = run.finish().with(1);
    terminal.keys("q");
    assert_eq!(terminal.wait(), Some(0));
    assert_restored(&terminal);
    drop(terminal);
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    let world = ran("lead");
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let mut terminal = tui(&world, 24, 80);
        terminal.send(signal);
        assert_eq!(terminal.wait(), Some(code));
        assert_restored(&terminal);
    }
    // Also when nobody reads the terminal.
    let terminal = tui(&world, 24, 80);
    let pid = terminal.pid();
    let held = terminal.hold();
    terminal.send(Signal::TERM);
    until("its end", Duration::from_secs(5), || offspring_tests::processes::is_dead(pid).then_some(()));
    assert!(terminal.is_cooked());
    drop(held);
    // And when its window is closed.
    let mut terminal = Terminal::start_as_leader(&world.command(&["watch", "--tui"]), 24, 80);
    terminal.until_text("q quit");
    terminal.close_window();
    assert_eq!(terminal.wait(), Some(129));
}

#[test]
fn without_a_terminal_it_says_so() {
    let world = ran("lead");
    let done = world.offspring(&["watch", "--tui"]).with(2);
    assert_eq!(
        done.stderr,
        "error: watch --tui needs a terminal, and stdout is none\nwithout --tui, `offspring watch` prints lines\n"
    );
    let mut command = world.command(&["watch", "--tui"]);
    command.env("TERM", "dumb");
    let (code, shown) = Terminal::start(&command, 24, 80).finish();
    assert_eq!(code, Some(2));
    assert!(shown.contains("TERM is `dumb` or not set") && !shown.contains('\u{1b}'), "{shown:?}");
    assert_eq!(world.offspring(&["watch", "--tui", "--json"]).code, Some(2));
    let (code, shown) = Terminal::start(&world.command(&["watch", "ses_none", "--tui"]), 24, 80).finish();
    assert_eq!(code, Some(2));
    assert!(shown.contains("no session `ses_none`") && !shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn w11_no_sequence_of_an_agent_reaches_the_window() {
    let world = ran("evil");
    let mut terminal = tui(&world, 24, 80);
    terminal.until_text("�]0;title��[2J�[31mred    and � more");
    terminal.until_text("�[?1049l");
    assert!(terminal.is_alternate());
    terminal.keys("q");
    assert_eq!(terminal.wait(), Some(0));
    assert!(!terminal.shown().contains("\u{7}") && !terminal.shown().contains("\u{9b}"));
    for locale in ["C", "de_DE.ISO-8859-1"] {
        let mut command = world.command(&["watch", "--tui"]);
        command.env("LC_ALL", locale);
        let mut terminal = Terminal::start(&command, 24, 80);
        terminal.until_text("+ evil completed");
        terminal.until_text("| ?]0;title??[2J?[31mred    and ? more");
        terminal.keys("q");
        assert_eq!(terminal.wait(), Some(0));
        assert!(terminal.shown().is_ascii(), "{:?}", terminal.shown());
    }
}

#[test]
fn colours_only_where_they_are_wanted() {
    let world = ran("lead");
    for (more, environment, wanted) in [
        (&[][..], ("NO_COLOR", ""), true),
        (&[], ("NO_COLOR", "1"), false),
        (&["--color=always"], ("NO_COLOR", "1"), true),
        (&["--color=never"], ("NO_COLOR", ""), false),
    ] {
        let mut command = world.command(&["watch", "--tui"]);
        command.args(more).envs([environment]);
        let mut terminal = Terminal::start(&command, 24, 80);
        terminal.until_text("all done");
        terminal.keys("q");
        assert_eq!(terminal.wait(), Some(0));
        let shown = terminal.shown();
        let is_colored = shown.contains("38;5;");
        assert_eq!(is_colored, wanted, "{more:?} {environment:?}: {shown:?}");
    }
}

/// A tree of 1,000 sessions, of which the last one said 16 MiB.
fn large(world: &World) {
    use offspring_protocol::{AgentType, Event, NodeName, event::TextDelta};
    use offspring_sessions::{
        ManagerOptions, NewChild, NewRoot, SessionManager,
        store::sqlite::{SqliteOptions, SqliteStore},
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(world.db(), SqliteOptions::default()).unwrap();
        let manager = SessionManager::new(std::sync::Arc::new(store), ManagerOptions::default());
        let name = |name: &str| NodeName::new(name).unwrap();
        let root = manager.create_root(NewRoot::new(name("root"), AgentType::Native)).await.unwrap();
        let root = root.start("go").await.unwrap();
        let mut last = None;
        for number in 1..1_000 {
            let child = NewChild::new(name(&format!("child-{number}")), AgentType::Native);
            let child = root.context.create_child(child).await.unwrap().start("part").await.unwrap();
            if let Some(before) = last.replace(child) {
                let before: offspring_sessions::StartedRun = before;
                before.end.finish(Ok("".into())).await.unwrap();
            }
        }
        let loud = last.unwrap();
        let mut line = 0;
        for _ in 0..4_096 {
            let mut text = String::new();
            while text.len() < 4_080 {
                line += 1;
                text.push_str(&format!("line {line}\n"));
            }
            loud.context.emit(Event::TextDelta(TextDelta { text })).await.unwrap();
        }
        loud.end.finish(Ok("".into())).await.unwrap();
        root.end.finish(Ok("".into())).await.unwrap();
        manager.close().await.unwrap();
    });
}

#[test]
fn a_thousand_sessions_and_16_mib_are_walked_in_little_memory() {
    let world = world();
    large(&world);
    let mut terminal = tui(&world, 24, 80);
    terminal.until_text("root: 1000 sessions, 1000 completed");
    let resident = |terminal: &Terminal| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", terminal.pid())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    let before = resident(&terminal);
    // The last one, and to the end of what it said.
    terminal.keys("\u{1b}[F");
    let last = |rows: &[String]| beside(rows).last()?.strip_prefix("line ")?.parse::<u64>().ok();
    let lines = terminal.until_screen("its end", |rows| last(rows).filter(|line| *line > 1_000_000));
    terminal.keys("g");
    terminal.until_screen("its beginning", |rows| {
        (beside(rows).get(1..3) == Some(&["> part", "line 1"])).then_some(())
    });
    for _ in 0..100 {
        terminal.keys("    ");
    }
    terminal.until_screen("far down", |rows| last(rows).filter(|line| *line > 8_000));
    terminal.keys("G");
    terminal.until_screen("its end", |rows| (last(rows) == Some(lines)).then_some(()));
    for _ in 0..100 {
        terminal.keys("kk");
    }
    terminal.until_text("child-799 ");
    let grown = resident(&terminal) - before;
    assert!(grown <= 64, "{grown} MiB more than before");
    terminal.keys("q");
    assert_eq!(terminal.wait(), Some(0));
}
