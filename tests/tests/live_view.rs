//! The live tree as a person sees it: in windows of several sizes, through a resize, without stale rows, and with the
//! terminal as it was at the end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::{process::Command, time::Duration};

use offspring_tests::{World, processes::SignalName as Signal, terminal::Terminal, until};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Names and output in characters that are wide, joined, or of no width. All wait for the gate.
const POOL: &str = r#"
entry: lead
agents:
  lead: {type: command, command: [sh, -c, 'for a in 日本語の調査 emoji-👩‍💻 é-marks plain; do offspring task --detach $a x; done >/dev/null; echo "計画: 👨‍👩‍👧‍👦 ❤️ 👍🏽 🇯🇵 e\u0301 を読んでいます、とても長い行です、窓よりも長い" >&2; until [ -e "$OFFSPRING_MANIFEST_DIR/gate" ]; do sleep 0.02; done; echo all done']}
  日本語の調査: &waits {type: command, command: [sh, -c, 'printf "出力の行 👩‍🔬👩‍🔬👩‍🔬👩‍🔬👩‍🔬👩‍🔬👩‍🔬👩‍🔬👩‍🔬👩‍🔬👩‍🔬👩‍🔬👩‍🔬👩‍🔬\n"; until [ -e "$OFFSPRING_MANIFEST_DIR/gate" ]; do sleep 0.02; done']}
  emoji-👩‍💻: *waits
  é-marks: *waits
  plain: *waits
  crowd: {type: command, command: [sh, -c, 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do offspring task --detach short $i; done >/dev/null; for i in 1 2 3; do offspring task --detach plain $i; done >/dev/null; until [ -e "$OFFSPRING_MANIFEST_DIR/gate" ]; do sleep 0.02; done']}
  short: {type: command, command: [echo, quick]}
  stubborn: {type: command, command: [sh, -c, 'trap "" TERM; echo here; offspring task plain x'], stop_grace_ms: 8000}
limits: {max_active: 40}
"#;

fn world() -> World {
    let world = World::new();
    world.pool(POOL);
    world
}

fn terminal(world: &World, node: &str, rows: u16, columns: u16) -> Terminal {
    Terminal::start(&world.run_command(node, "x", &[]), rows, columns)
}

/// The rows in which a session is at work.
fn running(rows: &[String]) -> Vec<&String> {
    rows.iter().filter(|row| row.contains(" running ")).collect()
}

/// No row was written that could be wider than the window, by any of the ways in which terminals count.
fn assert_narrow(shown: &str, columns: usize) {
    for row in without_sequences(shown).split("\r\n") {
        // What a person typed is shown by the terminal itself.
        let row = row.rsplit('\r').next().unwrap().trim_start_matches("^C");
        let one_by_one: usize = row.chars().filter_map(UnicodeWidthChar::width).sum();
        assert!(row.width() <= columns && one_by_one <= columns, "wider than {columns}: {row:?}");
    }
}

/// What was written, frame by frame: the sequences, all of them ours, are left out, and each frame begins a row.
fn without_sequences(shown: &str) -> String {
    let mut text = String::new();
    let mut rest = shown.chars();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            text.push(c);
            continue;
        }
        assert_eq!(rest.next(), Some('['), "only CSI sequences are ours: {shown:?}");
        let sequence: String = rest.by_ref().take_while(|c| !c.is_ascii_alphabetic()).collect();
        if sequence == "?2026" {
            text.push_str("\r\n");
        }
    }
    text
}

/// The terminal is as a shell expects it.
fn assert_restored(terminal: &Terminal) {
    assert!(terminal.cursor().visible, "the cursor is seen: {:?}", terminal.shown());
    assert!(terminal.wraps(), "rows wrap");
    assert!(terminal.is_cooked(), "what is typed is shown");
    assert!(!terminal.is_alternate(), "no full screen");
}

/// Each session stands once on what can be seen and scrolled back to, in its end; nothing of the live tree is left.
fn assert_no_stale_row(terminal: &Terminal, sessions: usize) {
    let rows = terminal.scrolled();
    let all = rows.join("\n");
    assert_eq!(running(&rows), Vec::<&String>::new(), "{all}");
    assert!(!all.contains(" pending") && !all.contains(" more: "), "{all}");
    let ended = rows.iter().filter(|row| ["✓", "✗", "⊘"].iter().any(|sign| row.contains(sign))).count();
    assert_eq!(ended, sessions, "{all}");
}

fn seconds(row: &str) -> f64 {
    let (_, time) = row.split_once(" running ").unwrap();
    let mut words = time.split(' ');
    let number: f64 = words.next().unwrap().parse().unwrap();
    if words.next().unwrap().starts_with("ms") { number / 1_000.0 } else { number }
}

#[test]
fn at_80_by_24_sessions_are_seen_at_work_side_by_side_and_their_time_advances_in_place() {
    let world = world();
    let mut terminal = terminal(&world, "lead", 24, 80);
    let before = terminal.until_screen("five at work", |rows| {
        (running(rows).len() == 5 && rows[1].contains("出力の行") && rows[0].contains("計画"))
            .then(|| rows.to_vec())
    });
    assert!(before[0].starts_with("▶ lead running "), "{before:#?}");
    assert!(before[1].starts_with("├─ ▶ 日本語の調査 running "), "{before:#?}");
    assert!(before[2].starts_with("├─ ▶ emoji-👩 running "), "{before:#?}");
    assert!(before[4].starts_with("└─ ▶ plain running "), "{before:#?}");
    assert!(before[5..].iter().all(String::is_empty), "{before:#?}");
    let after = terminal.until_screen("time", |rows| {
        (rows.iter().zip(&before).take(5).all(|(now, then)| seconds(now) >= seconds(then) + 0.2))
            .then(|| rows.to_vec())
    });
    assert_eq!(running(&after).len(), 5, "in place: {after:#?}");
    assert!(after[5..].iter().all(String::is_empty), "{after:#?}");
    assert!(!terminal.cursor().visible);

    world.write("pool/gate", "");
    assert_eq!(terminal.wait(), Some(0));
    assert_narrow(terminal.shown().split("all done").next().unwrap(), 80);
    assert_no_stale_row(&terminal, 5);
    assert_restored(&terminal);
}

#[test]
fn at_40_by_10_a_long_tree_folds_around_what_is_at_work() {
    let world = world();
    let mut terminal = terminal(&world, "crowd", 10, 40);
    let rows = terminal.until_screen("the folded tree", |rows| {
        (running(rows).len() == 4 && rows.iter().any(|row| row.starts_with("… and 27 more: 27 completed")))
            .then(|| rows.to_vec())
    });
    assert_eq!(running(&rows).len(), 4, "the root and three: {rows:#?}");
    assert!(rows[0].starts_with("▶ crowd running "), "{rows:#?}");
    assert!(rows[6].starts_with("└─ ▶ plain running "), "{rows:#?}");
    world.write("pool/gate", "");
    assert_eq!(terminal.wait(), Some(0));
    let shown = terminal.shown();
    assert_narrow(shown.rsplit_once("\u{1b}[J").unwrap().0, 40);
    assert_restored(&terminal);
    assert_no_stale_row(&terminal, 34);
}

/// The command below what a shell showed before, as it usually is.
fn below_a_screenful(command: &Command) -> Command {
    let mut below = Command::new("sh");
    below.args(["-c", "seq 101 140; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    below.current_dir(command.get_current_dir().unwrap());
    below.envs(command.get_envs().map(|(name, value)| (name, value.unwrap())));
    below
}

/// Waits until all five are at work on rows that are as wide as the window lets them be, and nothing else is.
fn until_all_at_work(terminal: &Terminal, columns: u16) {
    terminal.until_screen("five rows of the new width, and nothing of the old one", |rows| {
        let widest = running(rows).iter().map(|row| row.width()).max().unwrap_or_default();
        let drawn = rows.iter().filter(|row| row.parse::<u32>().is_err() && !row.is_empty()).count();
        let is_whole = running(rows).len() == 5 && rows.iter().any(|row| row.starts_with("└─ ▶ plain"));
        let is_wide = widest + 2 >= usize::from(columns) || columns > 90 && widest > 60;
        (is_whole && is_wide && drawn == 5).then_some(())
    });
}

#[test]
fn a_window_that_changes_leaves_no_stale_row() {
    let world = world();
    let mut terminal = Terminal::start(&below_a_screenful(&world.run_command("lead", "x", &[])), 24, 100);
    until_all_at_work(&terminal, 100);
    // Both ways, in width and in height.
    for (rows, columns) in [(24, 60), (24, 80), (12, 60), (30, 120), (24, 61), (24, 40), (10, 40), (24, 80)] {
        terminal.resize(rows, columns);
        until_all_at_work(&terminal, columns);
    }
    world.write("pool/gate", "");
    assert_eq!(terminal.wait(), Some(0));
    assert_no_stale_row(&terminal, 5);
    assert_restored(&terminal);
    let before: Vec<u32> = terminal.scrolled().iter().map_while(|row| row.parse().ok()).collect();
    assert_eq!(before, (101..=140).collect::<Vec<u32>>(), "what stood there before still does");
}

#[test]
fn from_80_by_24_to_40_by_10_on_an_empty_screen() {
    let world = world();
    let mut terminal = terminal(&world, "lead", 24, 80);
    until_all_at_work(&terminal, 80);
    terminal.resize(10, 40);
    until_all_at_work(&terminal, 40);
    world.write("pool/gate", "");
    assert_eq!(terminal.wait(), Some(0));
    let rows = terminal.screen();
    assert_eq!(running(&rows), Vec::<&String>::new(), "{rows:#?}");
    assert!(rows.iter().any(|row| row.starts_with("└─ ✓ plain completed")), "{rows:#?}");
    assert_restored(&terminal);
}

#[test]
fn cancel_force_and_killed_agents_leave_the_terminal_as_it_was() {
    let world = world();
    let mut cancelled = terminal(&world, "lead", 24, 80);
    cancelled.until_screen("at work", |rows| (running(rows).len() == 5).then_some(()));
    cancelled.keys("\u{3}");
    assert_eq!(cancelled.wait(), Some(130));
    assert_restored(&cancelled);
    assert_no_stale_row(&cancelled, 5);

    let mut forced = terminal(&world, "stubborn", 24, 80);
    forced.until_screen("at work", |rows| (running(rows).len() == 2).then_some(()));
    forced.keys("\u{3}");
    forced.until_text("once more to force");
    forced.keys("\u{3}");
    assert_eq!(forced.wait_within(Duration::from_secs(5)), Some(130));
    assert_restored(&forced);
    let rows = forced.scrolled();
    assert_eq!(running(&rows), Vec::<&String>::new(), "{rows:#?}");

    let mut killed = terminal(&world, "lead", 24, 80);
    killed.until_screen("at work", |rows| (running(rows).len() == 5).then_some(()));
    for agent in world.processes().iter().filter(|process| process.line.contains("OFFSPRING_MANIFEST_DIR")) {
        offspring_tests::processes::send(agent.pid, Signal::KILL);
    }
    assert_eq!(killed.wait(), Some(1));
    assert_restored(&killed);
    assert_no_stale_row(&killed, 5);
    drop((cancelled, forced, killed));
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn a_terminal_that_is_held_holds_up_nothing_but_what_it_should_show() {
    let world = world();
    let mut terminal = terminal(&world, "lead", 24, 80);
    terminal.until_screen("at work", |rows| (running(rows).len() == 5).then_some(()));
    let held = terminal.hold();
    world.write("pool/gate", "");
    until("the run's end in the store", Duration::from_secs(20), || {
        world.tree("latest").iter().all(|session| session["run_state"] == "completed").then_some(())
    });
    drop(held);
    assert_eq!(terminal.wait(), Some(0));
    assert_restored(&terminal);
}

#[test]
fn frames_are_few_however_much_is_said() {
    let world = World::new();
    world.pool("agents:\n  loud: {type: command, command: [sh, -c, 'seq 1 200000']}\nentry: loud\n");
    let started = std::time::Instant::now();
    let mut terminal = Terminal::start(&world.run_command("loud", "x", &[]), 24, 80);
    assert_eq!(terminal.wait(), Some(0));
    let frames = terminal.shown().matches("\u{1b}[?2026h").count();
    let most = usize::try_from(started.elapsed().as_millis() / 100).unwrap() + 2;
    assert!(frames <= most, "{frames} frames, at most {most}");
}

fn with(world: &World, node: &str, environment: &[(&str, &str)], more: &[&str]) -> Command {
    let mut command = world.run_command(node, "x", more);
    command.envs(environment.iter().copied());
    command
}

#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let world = world();
    world.write("pool/gate", "");
    for term in ["dumb", ""] {
        let command = with(&world, "lead", &[("TERM", term)], &[]);
        let (code, shown) = Terminal::start(&command, 24, 80).finish();
        assert_eq!(code, Some(0));
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        for line in ["▶ lead running", "  ▶ plain running", "  ✓ plain completed", "✓ lead completed"]
        {
            assert!(shown.lines().any(|shown| shown.starts_with(line)), "{line}: {shown}");
        }
    }
}

/// Whether the sign of a state was coloured.
fn is_colored(shown: &str) -> bool {
    let colored = shown.contains("\u{1b}[32m✓\u{1b}[0m");
    assert!(colored || !shown.contains("m✓"), "{shown:?}");
    colored
}

#[test]
fn colours_are_where_they_are_wanted() {
    let world = world();
    world.write("pool/gate", "");
    let cases = [
        (&[][..], &[][..], true),
        (&[("NO_COLOR", "1")], &[], false),
        (&[("NO_COLOR", "")], &[], true),
        (&[("NO_COLOR", "1")], &["--color", "always"], true),
        (&[], &["--color", "never"], false),
        (&[("CLICOLOR_FORCE", "1")], &["--color", "never"], false),
        (&[("TERM", "dumb")], &[], false),
        (&[], &["--color", "auto"], true),
    ];
    for (environment, more, wanted) in cases {
        let command = with(&world, "short", environment, more);
        let (code, shown) = Terminal::start(&command, 24, 80).finish();
        assert_eq!((code, is_colored(&shown)), (Some(0), wanted), "{environment:?} {more:?}: {shown:?}");
        for look in ["tree", "ls", "show"] {
            let mut command = world.command(&[look]);
            command.args(more).envs(environment.iter().copied());
            let (code, shown) = Terminal::start(&command, 24, 80).finish();
            assert_eq!(
                (code, is_colored(&shown)),
                (Some(0), wanted),
                "{look} {environment:?} {more:?}: {shown:?}"
            );
        }
    }
    // No terminal.
    for (environment, more, wanted) in [
        (&[][..], &[][..], false),
        (&[("CLICOLOR_FORCE", "1")], &[], true),
        (&[("CLICOLOR_FORCE", "0")], &[], false),
        (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], &[], false),
        (&[], &["--color=always"], true),
    ] {
        for look in ["tree", "ls", "show"] {
            let mut command = world.command(&[look]);
            command.args(more).envs(environment.iter().copied());
            let done = offspring_tests::Running::start(command).finish().with(0);
            assert_eq!(is_colored(&done.stdout), wanted, "{look} {environment:?} {more:?}: {done:?}");
        }
        let json = world.offspring(&["tree", "--json", "--color", "always"]).with(0).stdout;
        assert!(!json.contains('\u{1b}'), "{json}");
    }
    assert_eq!(world.offspring(&["ls", "--color", "sometimes"]).code, Some(2));
}

#[test]
fn w11_a_locale_without_utf8_gets_ascii_and_nothing_else() {
    let world = world();
    world.write("pool/gate", "");
    for locale in [("LC_ALL", "C"), ("LC_CTYPE", "POSIX"), ("LANG", "de_DE.ISO-8859-1")] {
        let command = with(&world, "lead", &[locale], &[]);
        let (code, shown) = Terminal::start(&command, 24, 80).finish();
        assert_eq!(code, Some(0));
        assert!(shown.is_ascii(), "{shown:?}");
        for row in [
            "|- \u{1b}[0m\u{1b}[32m+\u{1b}[0m ?????? completed",
            "`- \u{1b}[0m\u{1b}[32m+\u{1b}[0m plain completed",
        ] {
            assert!(shown.contains(row), "{row:?}: {shown:?}");
        }
        for look in [&["tree"][..], &["show"], &["ls"], &["watch"], &["tree", "--json"], &["show", "--json"]]
        {
            let mut command = world.command(look);
            command.envs([locale]);
            let (code, shown) = Terminal::start(&command, 24, 80).finish();
            assert_eq!(code, Some(0));
            assert!(shown.is_ascii(), "{look:?}: {shown:?}");
            assert!(look[0] != "tree" || look.len() > 1 || shown.contains("`- "), "{shown:?}");
        }
        // A pipe loses nothing, and is drawn in ASCII all the same.
        let mut command = world.command(&["tree"]);
        command.envs([locale]);
        let tree = offspring_tests::Running::start(command).finish().with(0).stdout;
        assert!(tree.contains("\n|- + 日本語の調査 completed"), "{tree}");
        let mut command = world.command(&["tree", "--json"]);
        command.envs([locale]);
        assert!(offspring_tests::Running::start(command).finish().with(0).stdout.contains("日本語の調査"));
    }
    for locale in [("LC_ALL", ""), ("LANG", "C.UTF-8"), ("LC_CTYPE", "ja_JP.utf8")] {
        let mut command = world.command(&["tree"]);
        command.envs([locale]);
        let tree = offspring_tests::Running::start(command).finish().with(0).stdout;
        assert!(tree.contains("\n├─ ✓ 日本語の調査 completed"), "{locale:?}: {tree}");
    }
}
