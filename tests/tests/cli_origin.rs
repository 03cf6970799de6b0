//! What `offspring run` keeps of how a root was started, so that it can be started again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::process::Stdio;

use offspring_sessions::{
    SessionStore,
    store::sqlite::{SqliteOptions, SqliteStore},
};
use offspring_tests::{Running, World};

const POOL: &str = "# kept, comments too: é\nagents:\n  top: {type: command, command: [sh, -c, 'offspring task low x']}\n  low: {type: command, command: [cat]}\nentry: top\n";

/// The origin of each session of the newest tree, the root's first.
fn origins(world: &World) -> Vec<Option<offspring_protocol::Origin>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(world.db(), SqliteOptions::default()).unwrap();
        let mut origins = Vec::new();
        for session in world.tree("latest") {
            let id = offspring_protocol::SessionId::new(session["id"].as_str().unwrap()).unwrap();
            origins.push(store.origin(id).await.unwrap());
        }
        origins
    })
}

#[test]
fn a_root_keeps_manifest_node_prompt_directory_and_version_and_its_children_nothing() {
    let world = World::new();
    let manifest = world.pool(POOL);
    // Named from where it is called, as people do.
    let mut command = world.command(&["run", "../pool/pool.yaml", "what is asked", "--quiet"]);
    command.current_dir(world.here());
    Running::start(command).finish().with(0);
    let mut origins = origins(&world).into_iter();
    let origin = origins.next().unwrap().unwrap();
    assert_eq!(origin.manifest, POOL);
    let path = origin.manifest_path.as_deref().unwrap();
    assert!(path.starts_with('/'), "{path}");
    assert_eq!(std::fs::canonicalize(path).unwrap(), manifest.canonicalize().unwrap());
    // The node that ran, not that none was named.
    assert_eq!(origin.node.as_str(), "top");
    assert_eq!(origin.prompt, "what is asked");
    assert_eq!(origin.cwd.as_deref(), world.here().canonicalize().unwrap().to_str());
    assert!(!origin.program_version.is_empty());
    assert_eq!(origin.rerun_of, None);
    assert_eq!(origins.collect::<Vec<_>>(), [None]);
}

#[test]
fn a_prompt_from_stdin_and_a_named_node_are_kept_as_they_were() {
    let world = World::new();
    world.pool(POOL);
    let prompt = world.write("prompt", "first\n\n  second é\n");
    let mut command = world.run_command("low", "-", &["--quiet"]);
    command.stdin(Stdio::from(std::fs::File::open(prompt).unwrap()));
    Running::start(command).finish().with(0);
    let [Some(origin)] = &origins(&world)[..] else { panic!("no origin") };
    assert_eq!((origin.node.as_str(), origin.prompt.as_str()), ("low", "first\n\n  second é\n"));
}

#[test]
fn the_json_of_a_root_says_whether_it_repeats_one() {
    let world = World::new();
    world.pool(POOL);
    world.run("low", "x", &["--quiet"]).with(0);
    world.offspring(&["rerun", "latest", "--quiet"]).with(0);
    let roots = world.json(&["ls", "--json"]);
    let first = &roots[1]["id"];
    assert_eq!((&roots[0]["rerun_of"], &roots[1]["rerun_of"]), (first, &serde_json::Value::Null));
    assert_eq!(&world.tree("latest")[0]["rerun_of"], first);
    assert_eq!(&world.json(&["show", "latest", "--json"])["rerun_of"], first);
}
