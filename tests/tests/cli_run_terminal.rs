//! `offspring run` on a terminal: the live tree, and that nothing of an agent steers it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use offspring_tests::{World, processes::SignalName as Signal, terminal::Terminal};

const POOL: &str = r#"
entry: top
agents:
  top: {type: command, command: [sh, -c, 'for i in 1 2 3 4 5 6 7 8; do offspring task --detach leaf $i; done >/dev/null; echo at work >&2; until [ -e "$OFFSPRING_MANIFEST_DIR/gate" ]; do sleep 0.05; done']}
  leaf: {type: command, command: [sh, -c, 'until [ -e "$OFFSPRING_MANIFEST_DIR/gate" ]; do sleep 0.05; done']}
  evil: {type: command, command: [sh, -c, 'printf "\033]0;title\007\033[2Jans\twer\302\233\n"; printf "\033[31merr\n" >&2; sleep 0.3']}
limits: {max_active: 20}
"#;

fn world() -> World {
    let world = World::new();
    world.pool(POOL);
    world
}

/// What stands on the screen after a redraw, without the sequences that move the cursor.
fn text(shown: &str) -> String {
    let mut text = String::new();
    let mut rest = shown.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            assert_eq!(rest.next(), Some('['), "only CSI sequences are ours: {shown:?}");
            let end = rest.by_ref().find(|c| c.is_ascii_alphabetic());
            assert!(
                matches!(end, Some('A' | 'B' | 'C' | 'D' | 'G' | 'K' | 'J' | 'm' | 'l' | 'h')),
                "{end:?}"
            );
        } else {
            text.push(c);
        }
    }
    text
}

#[test]
fn the_live_tree_has_a_line_per_session_fits_the_window_and_is_there_once_more_at_the_end() {
    let world = world();
    let terminal = Terminal::start(&world.run_command("top", "x", &[]), 7, 60);
    terminal.until_screen("the folded tree", |rows| {
        let shown = rows.join("\n");
        ["▶ top running ", "at work", "├─ ▶ leaf running ", "… and 5 more"]
            .iter()
            .all(|part| shown.contains(part))
            .then_some(())
    });
    world.write("pool/gate", "");
    let (code, shown) = terminal.finish();
    assert_eq!(code, Some(0));
    let shown = text(&shown);
    let (_, end) = shown.rsplit_once("✓ top completed ").unwrap();
    assert_eq!(end.matches("✓ leaf completed ").count(), 8, "the whole tree at the end: {end}");
    assert!(end.contains("completed: 9 sessions, depth 1, 0 failed, "), "{end}");
}

#[test]
fn w11_no_sequence_of_an_agent_reaches_the_terminal() {
    let world = world();
    for more in [&[][..], &["--json"]] {
        let (code, shown) = Terminal::start(&world.run_command("evil", "x", more), 24, 100).finish();
        assert_eq!(code, Some(0), "{shown}");
        let shown = text(&shown);
        assert!(!shown.contains(['\u{7}', '\u{9b}']), "{shown:?}");
        if more.is_empty() {
            assert!(shown.contains("ans\twer\u{fffd}\r\n"), "{shown:?}");
        }
    }
    for command in ["show", "watch", "tree", "ls"] {
        let (code, shown) = Terminal::start(&world.command(&[command]), 24, 100).finish();
        assert_eq!(code, Some(0));
        assert!(!shown.contains(['\u{7}', '\u{9b}']), "{command}: {shown:?}");
        // Ours are left: the colour of a state.
        let ours = ["\u{1b}[32m", "\u{1b}[0m"];
        let shown = ours.iter().fold(shown, |shown, ours| shown.replace(ours, ""));
        assert!(!shown.contains('\u{1b}'), "{command}: {shown:?}");
    }
}

#[test]
fn ctrl_c_leaves_the_terminal_as_it_was_and_says_what_happens() {
    let world = world();
    let mut terminal = Terminal::start(&world.run_command("top", "x", &[]), 24, 80);
    terminal.until_text("at work");
    terminal.send(Signal::INT);
    assert_eq!(terminal.wait(), Some(130));
    assert!(terminal.cursor().visible, "the cursor is back: {:?}", terminal.shown());
    let (_, shown) = terminal.finish();
    let shown = text(&shown);
    assert!(shown.contains("cancelling; once more to force"), "{shown}");
    assert!(shown.contains("cancelled: 9 sessions, depth 1, 0 failed, 9 cancelled, "), "{shown}");
    assert_eq!(world.processes(), []);
}
