//! `node/list`.

use offspring_tests::{
    World,
    serve::{Client, POOL},
};
use serde_json::json;

#[test]
fn it_names_what_can_be_prompted_and_where_a_prompt_goes() {
    let world = World::new();
    world.pool(&format!(
        "{POOL}teams:\n  both: {{mode: parallel, members: [echo, fail], description: Two at once.}}\n"
    ));
    let mut client = Client::new(&world);
    client.refused("node/list", &json!({})).is(-32007, "SDK server is not initialized");
    client.node("echo");
    let nodes = client.ask("node/list", &json!(null)).unwrap();
    let nodes = nodes["nodes"].as_array().unwrap();
    let names: Vec<&str> = nodes.iter().map(|node| node["name"].as_str().unwrap()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(names, sorted);
    assert_eq!(names, ["boss", "both", "echo", "fail", "gate", "lead", "slow", "stubborn", "top"]);
    let entries: Vec<_> = nodes.iter().filter(|node| node["entry"] == true).collect();
    assert_eq!(
        entries,
        [&json!({"name": "echo", "agent_type": "command", "description": "Says it again.", "entry": true})]
    );
    let both = nodes.iter().find(|node| node["name"] == "both").unwrap();
    assert_eq!((&both["agent_type"], &both["description"]), (&"team".into(), &"Two at once.".into()));
    client.shut_down();
}
