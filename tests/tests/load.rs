//! A great team, and members that say nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::time::Duration;

use offspring_tests::{Running, World, until};

const MEMBERS: usize = 500;
const ACTIVE: usize = 6;

fn pool(member: &str) -> String {
    let members = vec!["m"; MEMBERS].join(", ");
    format!(
        "entry: all\nagents:\n  m: {{type: command, command: [sh, -c, '{member}']}}\nteams:\n  all: {{mode: parallel, members: [{members}]}}\nlimits: {{max_active: {ACTIVE}}}\n",
    )
}

/// Slow on purpose: it starts 500 programs. Each counts, while it is alive, those that are.
#[test]
fn l5_of_a_team_of_500_no_more_than_max_active_are_ever_alive_and_what_waits_is_pending() {
    let world = World::new();
    let here = world.here();
    world.pool(&pool(
        "cat >/dev/null; : > $$; set -- [0-9]*; echo $#; until [ -e ../go ]; do sleep 0.05; done; rm $$",
    ));
    let mut shell = world.bare();
    // Few descriptors: what waits holds none.
    let program = shell.get_program().to_owned();
    shell = {
        let mut limited = std::process::Command::new("sh");
        limited.args(["-c", "ulimit -n 256; exec \"$@\"", "sh"]).arg(program).current_dir(&here).env_clear();
        for (name, value) in shell.get_envs() {
            if let Some(value) = value {
                limited.env(name, value);
            }
        }
        limited
    };
    shell.arg("--db").arg(world.db()).arg("run").arg(world.path("pool/pool.yaml")).args(["x", "--quiet"]);
    let running = Running::start(shell);
    let states = || -> Option<(usize, usize)> {
        let tree = world.offspring(&["tree", "latest", "--json"]);
        let tree: serde_json::Value = serde_json::from_str(&tree.stdout).ok()?;
        let count = |state: &str| {
            tree["sessions"].as_array().map_or(0, |rows| {
                rows.iter().filter(|row| row["run_state"] == state && row["depth"] == 1).count()
            })
        };
        Some((count("running"), count("pending")))
    };
    until("six at work and the others pending", Duration::from_secs(60), || {
        states().filter(|states| *states == (ACTIVE, MEMBERS - ACTIVE))
    });
    world.write("go", "");
    let done = running.finish_within(Duration::from_secs(300)).with(0);
    let alive: Vec<usize> = done.stdout.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(alive.len(), MEMBERS, "{}", done.stdout);
    assert!(alive.iter().all(|count| *count <= ACTIVE), "{:?}", alive.iter().max());
    assert!(alive.iter().any(|count| *count > 1), "{:?}", alive.iter().max());
}

#[test]
fn w8_silence_is_shown_before_it_fails_the_run_as_timed_out() {
    let world = World::new();
    world.pool(
        "agents:\n  mute: {type: command, command: [sh, -c, 'cat >/dev/null; echo hello; sleep @SLEEP@'], limits: {max_silence_ms: 3000}}\n",
    );
    let done = Running::start(world.run_command("mute", "x", &[])).finish().with(1);
    let shown = done.stderr.find(" of 3 s").unwrap_or_else(|| panic!("{}", done.stderr));
    let failed =
        done.stderr.find("timeout: it said nothing for 3").unwrap_or_else(|| panic!("{}", done.stderr));
    assert!(done.stderr.contains("mute running") && shown < failed, "{}", done.stderr);
    world.until_nothing_lives(Duration::from_secs(5));
}

#[test]
fn whoever_waits_for_a_child_or_says_the_same_again_is_not_silent() {
    let world = World::new();
    world.pool(
        "entry: boss\nagents:\n  boss: {type: command, command: [sh, -c, 'offspring task slow x'], limits: {max_silence_ms: 1000}}\n  slow: {type: command, command: [sh, -c, 'cat >/dev/null; for n in 1 2 3 4; do echo again >&2; sleep 0.5; done; echo done'], limits: {max_silence_ms: 1500}}\n",
    );
    let done = world.run("boss", "x", &["--quiet"]).with(0);
    assert_eq!(done.stdout, "done\n");
}
