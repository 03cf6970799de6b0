//! `session/working-directory/get` and `set`.

use std::{fs, os::unix::fs::symlink};

use offspring_tests::{
    World,
    serve::{Client, POOL},
};
use serde_json::json;

use crate::refuses_what_all_refuse;

const GET: &str = "session/working-directory/get";
const SET: &str = "session/working-directory/set";

#[test]
fn l3_it_is_where_the_next_run_works_and_what_its_children_inherit() {
    let world = World::new();
    let more = "  where: {type: command, command: [pwd]}\n  asks: {type: command, command: [sh, -c, 'offspring task where x']}\n";
    world.pool(&format!("{POOL}{more}"));
    let mut client = Client::new(&world);
    client.node("asks");
    let here = world.here().canonicalize().unwrap();
    fs::create_dir_all(here.join("a/b")).unwrap();
    symlink(here.join("a/b"), here.join("link")).unwrap();
    // Asking makes a session that is not there, as the runtimes do.
    assert_eq!(client.ask_of(GET, "s").unwrap(), json!({"cwd": here}));
    for (path, wanted) in [("a", "a"), ("b", "a/b"), ("..", "a"), ("../link", "a/b")] {
        let set = client.ask(SET, &json!({"sessionId": "s", "path": path})).unwrap();
        assert_eq!(set, json!({"cwd": here.join(wanted)}), "{path}");
        assert_eq!(client.ask_of(GET, "s").unwrap(), set);
    }
    client.run("s", "x");
    let said = client.until(|line| line["method"] == "subagent.finished");
    let wanted = format!("{}\n", here.join("a/b").display());
    let text = said["params"]["lastAssistantMessage"][0]["text"].as_str().unwrap();
    assert_eq!(text.trim_end(), wanted.trim_end());
    let absolute = client.ask(SET, &json!({"sessionId": "s", "path": here})).unwrap();
    assert_eq!(absolute, json!({"cwd": here}));
    client.shut_down();
}

#[test]
fn what_is_no_directory_is_refused_in_the_runtimes_words() {
    let world = World::new();
    let mut client = Client::of_node(&world, "echo");
    world.write("here/file", "");
    for path in ["nope", "file", "file/x", "a\0b"] {
        let error = client.refused(SET, &json!({"sessionId": "s", "path": path}));
        error.is(-32602, &format!("working-directory: directory does not exist: {path:?}"));
    }
    let error = client.refused(SET, &json!({"sessionId": "s"}));
    assert!(error.code == -32602 && error.message.contains("missing field `path`"), "{error:?}");
    assert_eq!(client.refused(SET, &json!({"sessionId": "s", "path": 5})).code, -32602);
    client.shut_down();
    let mut client = Client::of_node(&world, "echo");
    client.refused(GET, &json!({"sessionId": "s"})).is(-32008, "session \"s\" already exists");
    client.shut_down();
}

#[test]
fn both_need_initialize_and_params() {
    for method in [GET, SET] {
        refuses_what_all_refuse(method, &json!({"sessionId": "s", "path": "."}));
    }
}
