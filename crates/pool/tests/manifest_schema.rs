//! The JSON Schema of a manifest and the reference of its keys say what the reader does.
#![cfg(feature = "schema")]
#![expect(clippy::panic, reason = "helpers of tests fail a test by panicking")]

use std::{env, fs};

use offspring_pool::manifest::{KeyReference, Limits, Manifest, keys, schema};
use serde_json::{Value, json};

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/manifest.schema.json");

/// With `UPDATE_SCHEMAS=1` the committed copy is written instead.
#[test]
fn the_committed_schema_is_the_one_the_code_makes() {
    let made = schema(&[]).to_value();
    if env::var_os("UPDATE_SCHEMAS").is_some() {
        fs::write(COMMITTED, serde_json::to_string_pretty(&made).unwrap() + "\n").unwrap();
    }
    let committed: Value = serde_json::from_str(&fs::read_to_string(COMMITTED).unwrap()).unwrap();
    assert!(
        committed == made,
        "schemas/manifest.schema.json is out of date; run \
         `UPDATE_SCHEMAS=1 cargo test -p offspring-pool --features schema --test manifest_schema`"
    );
}

fn key<'k>(keys: &'k [KeyReference], path: &str) -> &'k KeyReference {
    keys.iter().find(|key| key.path == path).unwrap_or_else(|| panic!("no {path}"))
}

#[test]
fn every_key_has_a_meaning_and_says_what_it_takes() {
    let keys = keys(&[]);
    for key in &keys {
        assert!(!key.meaning.is_empty() && key.takes != "nothing" && !key.takes.is_empty(), "{key:?}");
        for word in ["struct", "Option", "File", "rule"] {
            assert!(!key.meaning.contains(word) && !key.takes.contains(word), "{key:?}");
        }
    }
    assert_eq!(key(&keys, "agents.NAME.type").takes, "text");
    assert!(key(&keys, "agents.NAME.type").required);
    assert_eq!(key(&keys, "teams.NAME.mode").takes, "`parallel` or `sequential`");
    assert_eq!(key(&keys, "teams.NAME.members").takes, "list of text or mapping");
    assert_eq!(
        key(&keys, "agents.NAME.environment").takes,
        "mapping from names to text or number or `true` or `false` or mapping"
    );
    assert_eq!(key(&keys, "agents.NAME.environment.NAME.from").takes, "text");
    assert_eq!(key(&keys, "workers[].type").takes, "`agent` or `team`");
    assert_eq!(key(&keys, "limits.max_depth").takes, "whole number from 1");
}

#[test]
fn l5_the_documented_defaults_are_the_ones_in_force() {
    let keys = keys(&[]);
    let Limits { session, max_active: _, max_queued, max_prompt_bytes, max_output_bytes, max_silence_ms: _ } =
        Limits::default();
    let documented = |name: &str| key(&keys, &format!("limits.{name}")).default.clone();
    assert_eq!(documented("max_depth"), session.max_depth.map(|n| n.to_string()));
    assert_eq!(documented("max_descendants"), session.max_descendants.map(|n| n.to_string()));
    assert_eq!(documented("max_live_children"), session.max_live_children.map(|n| n.to_string()));
    assert_eq!(documented("max_wall_ms"), session.max_wall_ms.map(|n| n.to_string()));
    assert_eq!(documented("max_queued"), Some(max_queued.to_string()));
    assert_eq!(documented("max_prompt_bytes"), Some(max_prompt_bytes.to_string()));
    assert_eq!(documented("max_output_bytes"), Some(max_output_bytes.to_string()));
}

/// A key that is in the schema is known to the reader, and one that the reader knows is in the schema.
#[test]
fn the_schema_and_the_reader_know_the_same_keys() {
    let schema = schema(&[]).to_value();
    let known = |pointer: &str| -> Vec<String> {
        let mut names: Vec<String> =
            schema.pointer(pointer).unwrap()["properties"].as_object().unwrap().keys().cloned().collect();
        names.sort();
        names
    };
    let reader = |text: &str| -> Vec<String> {
        let error = Manifest::from_str(text, "p.yaml".as_ref()).unwrap_err();
        let problem =
            error.problems().iter().find(|problem| problem.message.contains("unknown key")).unwrap().clone();
        let mut names: Vec<String> =
            problem.suggestion.unwrap().split('`').skip(1).step_by(2).map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(reader("agents: {a: {type: x}}\nqqqqqqqq: 1"), known(""));
    assert_eq!(reader("agents: {a: {type: x}}\nlimits: {qqqqqqqq: 1}"), known("/$defs/Limits"));
    assert_eq!(reader("agents: {a: {type: x}}\nstorage: {qqqqqqqq: 1}"), known("/$defs/Storage"));
    assert_eq!(reader("agents: {a: {type: x, limits: {qqqqqqqq: 1}}}"), known("/$defs/AgentLimits"));
    assert_eq!(
        reader("agents: {a: {type: x}}\nteams: {t: {mode: parallel, members: [], qqqqqqqq: 1}}"),
        known("/$defs/Team")
    );
    assert_eq!(reader("agents: {a: {type: x}}\nworkers: [{qqqqqqqq: 1}]"), known("/$defs/Worker"));

    // What every agent has: nobody's settings contain it.
    for name in known("/$defs/Agent") {
        let value = match name.as_str() {
            "environment" | "limits" => "{}",
            "workers" => "[]",
            _ => "x",
        };
        let other = if name == "type" { "" } else { "type: x, " };
        let text = format!("agents: {{a: {{{other}{name}: {value}}}}}");
        let manifest = Manifest::from_str(&text, "p.yaml".as_ref()).unwrap();
        assert_eq!(manifest.agents()[0].settings.keys().count(), 0, "{name}");
    }
}

#[test]
fn a_node_type_adds_its_keys_to_the_schema_and_the_reference() {
    let of_type = schemars::json_schema!({
        "title": "Echo",
        "type": "object",
        "properties": { "repeat": { "type": "integer", "minimum": 1, "default": 1, "description": "How often." } },
    });
    let types = [("echo", of_type)];
    let schema = schema(&types).to_value();
    let variant = &schema["$defs"]["Agent"]["allOf"][0];
    assert_eq!(variant["if"]["properties"]["type"]["const"], json!("echo"));
    assert_eq!(variant["then"]["title"], Value::Null);
    let keys = keys(&types);
    let repeat = key(&keys, "agents.NAME(type: echo).repeat");
    assert_eq!((repeat.takes.as_str(), repeat.default.as_deref()), ("whole number from 1", Some("1")));
}

#[test]
fn every_limit_of_the_schema_has_a_value_and_no_other() {
    let keys = keys(&[]);
    let below = |prefix: &str| -> Vec<&str> {
        let mut found: Vec<&str> = keys.iter().filter_map(|key| key.path.strip_prefix(prefix)).collect();
        found.sort_unstable();
        found
    };
    let names = |values: Vec<(&'static str, Option<u64>)>| -> Vec<&str> {
        let mut names: Vec<&str> = values.into_iter().map(|(key, _)| key).collect();
        names.sort_unstable();
        names
    };
    let limits = Limits::default();
    assert_eq!(names(limits.values()), below("limits."));
    let of_agents = below("agents.NAME.limits.");
    let all: Vec<String> = of_agents.iter().map(|key| format!("{key}: 1")).collect();
    let text = format!("agents: {{a: {{type: x, limits: {{{}}}}}}}", all.join(", "));
    let manifest = Manifest::from_str(&text, "p.yaml".as_ref()).unwrap();
    let narrowed = manifest.agents()[0].narrowed().map(|(key, value)| (key, Some(value))).collect();
    assert_eq!(names(narrowed), of_agents);
}
