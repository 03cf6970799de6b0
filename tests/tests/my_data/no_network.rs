//! The main job leaves the machine by no way: it works without a network, and no process of it has a socket for one.

use std::{
    collections::HashSet,
    fs,
    net::{TcpListener, UdpSocket},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use offspring_tests::{
    Finished, Running, World,
    kernel::{inside, unshared},
};

/// A repository with a history and something to find.
fn repository(world: &World) {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(world.here()).env("HOME", world.path("home"));
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), "Ada").env(format!("GIT_{who}_EMAIL"), "ada@example.org");
        }
        assert!(git.status().unwrap().success(), "{arguments:?}");
    };
    git(&["init", "-q", "-b", "main"]);
    // A way out, if anything looked for one.
    git(&["remote", "add", "origin", "https://192.0.2.1/nowhere.git"]);
    world.write("here/src/main.c", "/* FIXME: the planted mistake */\nint main(void) { return 0; }\n");
    world.write("here/README", "A small thing. TODO: write more\n");
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "begin"]);
}

/// The main job, on the repository of this world.
fn survey(world: &World) -> Command {
    let manifest =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/survey.yaml").canonicalize().unwrap();
    let mut survey = world.bare();
    survey.arg("run").arg(manifest).args(["What would you fix first in this repository?", "--quiet"]);
    survey
}

fn check(world: &World, done: Finished) {
    let done = done.with(0);
    assert!(done.stdout.contains("the planted mistake"), "{done:?}");
    let mut tree = world.bare();
    tree.args(["tree", "latest", "--json"]);
    let tree = Running::start(tree).finish().with(0).stdout;
    let tree: serde_json::Value = serde_json::from_str(&tree).unwrap();
    let sessions = tree["sessions"].as_array().unwrap();
    assert!(
        sessions.len() > 10 && sessions.iter().all(|session| session["outcome"] == "completed"),
        "{sessions:?}"
    );
}

/// The sockets of a process that reach beyond the machine's own: TCP, UDP and raw ones, by their inodes.
fn sockets(pid: u32) -> Vec<String> {
    let process = Path::new("/proc").join(pid.to_string());
    let open: HashSet<String> = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|descriptor| {
            let to = fs::read_link(descriptor.path()).ok()?;
            Some(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6", "raw", "raw6", "icmp", "icmp6", "udplite", "packet"] {
        let lines = fs::read_to_string(process.join("net").join(table)).unwrap_or_default();
        // The inode is the tenth word of a line; of packets the last.
        let inode = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let word = if table == "packet" { words.last() } else { words.get(9) };
            word.map(|word| (*word).to_owned())
        };
        found.extend(
            lines
                .lines()
                .skip(1)
                .filter(|line| inode(line).is_some_and(|inode| open.contains(&inode)))
                .map(|line| format!("{table}: {line}")),
        );
    }
    found
}

/// Looks at every process of a run again and again until it has ended.
fn watched(world: &World, command: Command) -> Finished {
    let mut run = Running::start(command);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut seen = HashSet::new();
    while !run.has_ended() {
        assert!(Instant::now() < deadline);
        for process in world.processes() {
            assert_eq!(sockets(process.pid), Vec::<String>::new(), "{process:?}");
            seen.insert(process.pid);
        }
    }
    assert!(seen.len() > 3, "the run was not looked at: {seen:?}");
    run.finish()
}

#[test]
fn a_socket_would_be_seen() {
    let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    assert_eq!(sockets(std::process::id()).len(), 2);
    drop((tcp, udp));
    assert_eq!(sockets(std::process::id()), Vec::<String>::new());
}

#[test]
fn the_main_job_opens_no_socket_to_a_network() {
    let world = World::new();
    repository(&world);
    let done = watched(&world, survey(&world));
    check(&world, done);
}

#[test]
fn the_main_job_works_without_any_network() {
    let Some(mut alone) = unshared("n") else { return };
    // Only a loopback that is down: whoever wants to say something to anybody hears at once that it cannot.
    let proof = "test \"$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ')\" = lo || exit 97; exec \"$@\"";
    alone.args(["sh", "-c", proof, "sh"]);
    let world = World::new();
    repository(&world);
    let done = watched(&world, inside(alone, &survey(&world)));
    check(&world, done);
}
