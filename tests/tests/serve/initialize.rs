//! `initialize`.

use offspring_tests::{
    World,
    serve::{Client, POOL},
};
use serde_json::json;

fn client() -> (World, Client) {
    let world = World::new();
    world.pool(POOL);
    let client = Client::new(&world);
    (world, client)
}

#[test]
fn it_says_who_answers_and_what_there_is_beyond_the_runtimes() {
    let (_world, mut client) = client();
    let said = client.node("echo");
    assert_eq!(said["serverInfo"]["name"], "offspring");
    assert_eq!(said["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
    let methods = said["capabilities"]["methods"].as_array().unwrap().clone();
    for method in [
        "session/list",
        "session/get",
        "session/cancel",
        "tree/get",
        "tree/subscribe",
        "tree/unsubscribe",
        "node/list",
    ] {
        assert!(methods.contains(&json!(method)), "{method}");
        // What is announced is there: without params it is refused for them or answered, and is not unknown.
        if let Err(error) = client.ask(method, &json!({})) {
            assert_ne!(error.code, -32601, "{method}");
        }
    }
    assert_eq!(said["capabilities"]["notifications"], json!(["tree.event"]));
    client.shut_down();
}

#[test]
fn a_provider_that_is_not_ours_means_the_entry_and_ours_a_node() {
    let (world, mut client) = client();
    let here = world.here();
    let params = json!({"cwd": here, "provider": "deepseek-official", "model": "deepseek-v4-flash", "reasoningEffort": "high", "maxTokens": 9});
    client.ask("initialize", &params).unwrap();
    client.run("by-entry", "said");
    // It may be repeated, and the last one counts for what is made from then on.
    client.node("lead");
    client.run("by-name", "said");
    let agent = |client: &mut Client, id: &str| {
        client.ask_of("session/get", id).unwrap()["session"]["agent_name"].clone()
    };
    assert_eq!(
        (agent(&mut client, "by-entry"), agent(&mut client, "by-name")),
        ("echo".into(), "lead".into())
    );
    client.shut_down();
}

#[test]
fn what_cannot_be_worked_with_is_refused_and_can_be_said_again() {
    let (world, mut client) = client();
    let file = world.write("here/file", "");
    let with = |name: &str, value: serde_json::Value| {
        let mut params = json!({"cwd": world.here(), "provider": "offspring", "model": "echo"});
        params[name] = value;
        params
    };
    for (params, code, message) in [
        (with("model", json!("ecko")), -32002, "there is no node `ecko`; did you mean `echo`?"),
        (with("model", json!("")), -32602, "name"),
        (with("cwd", json!("relative")), -32602, "cwd \"relative\" is no directory, or not absolute"),
        (
            with("cwd", json!("/no/such/place")),
            -32602,
            "cwd \"/no/such/place\" is no directory, or not absolute",
        ),
        (with("cwd", json!(file)), -32602, "is no directory, or not absolute"),
        (with("cwd", json!(null)), -32602, "the params of this call are not what it takes: "),
        (with("maxTokens", json!(0)), -32602, "initialize maxTokens must be a positive safe integer"),
        (with("maxTokens", json!("9")), -32602, "the params of this call are not what it takes: "),
        (with("reasoningEffort", json!("")), -32602, "initialize reasoningEffort must be a non-empty string"),
        (json!({}), -32602, "missing field `cwd`"),
        (json!(null), -32602, "missing field `cwd`"),
        (json!([1]), -32602, "the params of this call are not what it takes: "),
    ] {
        let error = client.refused("initialize", &params);
        assert!(error.code == code && error.message.contains(message), "{params}: {error:?}");
        assert_eq!(client.refused("node/list", &json!({})).code, -32007, "it is not initialized by that");
    }
    client.node("echo");
    client.is_well();
    client.shut_down();
}
