use std::sync::Arc;

use offspring_protocol::{AgentType, RawEvent, Timestamp, event::TextDelta};
use serde_json::{Value, json};

use super::*;

/// A tree of `root` and `child`, told event by event.
struct Tree {
    translator: Translator,
    seq: u64,
}

fn info(id: &str) -> Arc<SessionInfo> {
    let root: SessionId = "root".parse().unwrap();
    let is_root = id == "root";
    let id: SessionId = id.parse().unwrap();
    let path: Vec<SessionId> = if is_root { vec![id.clone()] } else { vec![root.clone(), id.clone()] };
    Arc::new(SessionInfo {
        parent: (!is_root).then(|| root.clone()),
        depth: u32::from(!is_root),
        root,
        id,
        path: path.into(),
        agent_name: "node".parse().unwrap(),
        agent_type: AgentType::Native,
        source_type: None,
    })
}

impl Tree {
    fn new() -> Self {
        Self { translator: Translator::new(1_000), seq: 0 }
    }

    fn told(&mut self, session: &str, kind: &'static str, data: &Value) -> Vec<Value> {
        let data = serde_json::value::to_raw_value(data).unwrap();
        self.envelope(session, RawEvent::new(kind, data), false)
    }

    fn envelope(&mut self, session: &str, event: RawEvent, late: bool) -> Vec<Value> {
        self.seq += 1;
        let (seq, at) = (self.seq, Timestamp(7));
        let envelope = Envelope { seq, at, run: None, late, session: info(session), event };
        let mut lines = Vec::new();
        self.translator.translate(&envelope, &mut lines);
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn run(&mut self, session: &str, prompt_id: Option<&str>) -> Vec<Value> {
        let data = json!({"session_id": session, "run_id": "r", "agent_name": "node", "prompt": "do", "prompt_id": prompt_id});
        self.told(session, "run_started", &data)
    }

    fn idle(&mut self, session: &str) -> Vec<Value> {
        self.told(session, "status_changed", &json!({"state": "idle", "outcome": "completed"}))
    }
}

/// What a line is: its event type, its status, or its method.
fn words(lines: &[Value]) -> Vec<String> {
    let word = |line: &Value| {
        let params = &line["params"];
        let word = params["event"]["type"].as_str().or(params["status"].as_str());
        match line["method"].as_str().unwrap() {
            method @ ("subagent.started" | "subagent.finished") => method.to_owned(),
            _ => word.unwrap().to_owned(),
        }
    };
    lines.iter().map(word).collect()
}

const RUN: [&str; 4] = ["running", "turn/start", "agent/inbox/spliced", "user/message"];

#[test]
fn t13_a_prompt_has_its_receipt_before_its_turn_and_one_idle_after_all_that_wait() {
    let mut tree = Tree::new();
    for id in ["m1", "m2"] {
        let lines = tree.told("root", "prompt_received", &json!({"prompt_id": id, "text": "do"}));
        assert_eq!(words(&lines), ["agent/inbox/spliced"]);
        assert_eq!(lines[0]["params"]["event"]["data"]["inserted"][0]["id"], id);
    }
    assert_eq!(words(&tree.run("root", Some("m1"))), RUN);
    assert_eq!(words(&tree.told("root", "stream_complete", &json!({}))), ["turn/end"]);
    assert_eq!(words(&tree.idle("root")), [] as [&str; 0], "another prompt waits");
    assert_eq!(words(&tree.run("root", Some("m2"))), RUN[1..]);
    tree.told("root", "stream_complete", &json!({}));
    assert_eq!(words(&tree.idle("root")), ["idle"]);
}

#[test]
fn the_events_of_a_session_are_numbered_by_themselves() {
    let mut tree = Tree::new();
    let numbers = |lines: &[Value]| -> Vec<u64> {
        lines.iter().filter_map(|line| line["params"]["event"]["seq"].as_u64()).collect()
    };
    assert_eq!(numbers(&tree.run("root", None)), [0, 1, 2, 3]);
    assert_eq!(numbers(&tree.run("child", None)), [0, 1, 2, 3]);
    assert_eq!(numbers(&tree.told("root", "stream_complete", &json!({}))), [4]);
}

#[test]
fn t3_a_second_run_of_a_child_is_a_second_start_and_a_second_finish_of_the_same_ids() {
    let mut tree = Tree::new();
    let spawn = json!({
        "child_session_id": "child", "parent_session_id": "root", "spawn_mechanism": "task", "source_name": "node",
        "source_type": "agent", "agent_type": "native", "depth": 1, "path": ["root", "child"],
    });
    let started = tree.told("root", "spawn_session_start", &spawn);
    assert_eq!(words(&started), ["subagent.started"]);
    assert_eq!(words(&tree.run("child", None))[0], "agent/inbox/spliced");
    tree.told("child", "message_complete", &json!({"message_id": "m", "text": "found"}));
    tree.told("child", "stream_complete", &json!({}));
    let finished = tree.idle("child");
    assert_eq!(words(&finished), ["idle", "subagent.finished"]);
    assert_eq!(finished[1]["params"]["lastAssistantMessage"], json!([{"type": "text", "text": "found"}]));
    assert_eq!(finished[1]["params"]["stopReason"], "completed");
    let again = tree.run("child", None);
    assert_eq!(words(&again)[..2], ["subagent.started", "agent/inbox/spliced"]);
    assert_eq!(again[0], started[0]);
}

#[test]
fn l12_a_late_event_ends_nothing() {
    let mut tree = Tree::new();
    tree.run("root", None);
    let text = RawEvent::from(&Event::StreamComplete(StreamComplete::default()));
    assert_eq!(words(&tree.envelope("root", text, true)), ["offspring/late"]);
    assert!(tree.translator.is_running(&"root".parse().unwrap()));
}

#[test]
fn a_run_that_ends_before_it_began_answers_its_prompt() {
    let mut tree = Tree::new();
    tree.told("root", "prompt_received", &json!({"prompt_id": "m1", "text": "do"}));
    let lines = tree.told("root", "stream_complete", &json!({"cancelled": true}));
    assert_eq!(words(&lines), ["running", "turn/start", "turn/end"]);
    assert_eq!(lines[2]["params"]["event"]["data"]["reason"]["kind"], "aborted");
    assert_eq!(words(&tree.idle("root")), ["idle"]);
    assert_eq!(tree.translator.waiting(&"root".parse().unwrap()), []);
}

#[test]
fn a_dropped_prompt_is_a_turn_that_fails() {
    let mut tree = Tree::new();
    tree.told("root", "prompt_received", &json!({"prompt_id": "m1", "text": "do"}));
    let lines = tree.told(
        "root",
        "prompt_dropped",
        &json!({"prompt_id": "m1", "message": "gone", "code": "owner_lost"}),
    );
    assert_eq!(words(&lines), ["running", "turn/start", "turn/end", "idle"]);
    let reason = &lines[2]["params"]["event"]["data"]["reason"];
    assert_eq!(*reason, json!({"kind": "error", "error": {"message": "gone", "code": "owner_lost"}}));
}

/// The number and the reason of every turn that ended.
fn ends(lines: &[Value]) -> Vec<(u64, String)> {
    let events = lines.iter().map(|line| &line["params"]["event"]);
    let ended = events.filter(|event| event["type"] == "turn/end");
    let end = |event: &Value| {
        let data = &event["data"];
        (data["turn"].as_u64().unwrap(), data["reason"]["kind"].as_str().unwrap().to_owned())
    };
    ended.map(end).collect()
}

#[test]
fn t13_prompts_that_are_dropped_after_the_last_run_end_the_activity() {
    let mut tree = Tree::new();
    for id in ["m1", "m2", "m3"] {
        tree.told("root", "prompt_received", &json!({"prompt_id": id, "text": "do"}));
    }
    tree.run("root", Some("m1"));
    tree.told("root", "run_error", &json!({"message": "gone", "code": "owner_lost", "interrupted": true}));
    assert_eq!(words(&tree.idle("root")), [] as [&str; 0]);
    let dropped = |id: &str| json!({"prompt_id": id, "message": "gone", "code": "owner_lost"});
    assert_eq!(words(&tree.told("root", "prompt_dropped", &dropped("m2"))), ["turn/start", "turn/end"]);
    assert_eq!(
        words(&tree.told("root", "prompt_dropped", &dropped("m3"))),
        ["turn/start", "turn/end", "idle"]
    );
    assert_eq!(words(&tree.run("root", None))[..2], ["agent/inbox/spliced", "running"]);
}

#[test]
fn a_prompt_that_is_dropped_during_a_turn_leaves_that_turn_its_number() {
    let mut tree = Tree::new();
    tree.run("root", None);
    tree.told("root", "prompt_received", &json!({"prompt_id": "m2", "text": "do"}));
    let dropped = json!({"prompt_id": "m2", "message": "cancelled", "code": "cancelled"});
    let lines = tree.told("root", "prompt_dropped", &dropped);
    assert_eq!(words(&lines), ["turn/start", "turn/end"], "the run goes on");
    assert_eq!(ends(&lines), [(2, "aborted".to_owned())]);
    let lines = tree.told("root", "stream_complete", &json!({"cancelled": true}));
    assert_eq!(ends(&lines), [(1, "aborted".to_owned())]);
    assert_eq!(words(&tree.idle("root")), ["idle"]);
    tree.run("root", None);
    assert_eq!(ends(&tree.told("root", "stream_complete", &json!({}))), [(3, "completed".to_owned())]);
}

#[test]
fn a_message_that_repeats_nothing_is_made_of_its_pieces_and_a_long_one_is_cut() {
    let mut tree = Tree::new();
    tree.run("root", None);
    for _ in 0..300 {
        let piece = Event::TextDelta(TextDelta { text: "äöü?".to_owned() });
        assert_eq!(tree.envelope("root", RawEvent::from(&piece), false).len(), 0);
    }
    let whole = json!({"message_id": "m", "text": "", "streamed_bytes": 2_100});
    let lines = tree.told("root", "message_complete", &whole);
    let text = lines[0]["params"]["event"]["data"]["message"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("äöü?äöü?"), "{text}");
    assert!(text.ends_with("have all of it]") && text.contains("2100 bytes"), "{text}");
    assert!(text.len() < 1_200);
}

#[test]
fn what_the_wire_has_no_word_for_goes_out_as_it_is() {
    let mut tree = Tree::new();
    let lines = tree.told("root", "custom", &json!({"name": "stderr", "data": "x"}));
    assert_eq!(words(&lines), ["offspring/custom"]);
    assert_eq!(lines[0]["params"]["event"]["data"], json!({"name": "stderr", "data": "x"}));
}
