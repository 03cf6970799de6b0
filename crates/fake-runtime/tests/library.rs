//! The scripts of the library: there is one for every rule, each writes what it says, and what it expects of a client
//! is what the rules say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod driver;

use std::collections::{BTreeMap, BTreeSet};

use driver::{Driver, prompt, request};
use offspring_fake_runtime::{Expectations, ExpectedNotification, PROMPT, Player, TurnEnd, library};
use offspring_protocol::SessionId;
use offspring_tree::router::{Notification, Router};
use serde_json::{Value, json};

/// The default limit of a frame: what is longer is skipped by a client.
const FRAME_LIMIT_BYTES: usize = 16 * 1024 * 1024;

#[test]
fn every_rule_about_attribution_and_wire_has_a_script() {
    let page = include_str!("../../../docs/rules.md");
    let numbers = page.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
    let rules: Vec<&str> =
        numbers.map(|(number, _)| number).filter(|number| number.starts_with(['T', 'W'])).collect();
    assert!(rules.len() >= 26, "{rules:?}");
    for rule in rules {
        let prefix = format!("{}{:0>2}-", rule[..1].to_lowercase(), &rule[1..]);
        let script = library::SCRIPTS.iter().find(|script| script.name.starts_with(&prefix));
        let script = script.unwrap_or_else(|| panic!("no script begins with {prefix}"));
        assert!(
            script.parse().unwrap().rules().contains(&rule.to_owned()),
            "{} is not about {rule}",
            script.name
        );
    }
}

#[test]
fn the_library_is_its_directory() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts");
    let files: BTreeSet<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let names: BTreeSet<String> =
        library::SCRIPTS.iter().map(|script| format!("{}.script", script.name)).collect();
    assert_eq!(files, names);
    assert_eq!(library::find("t04").unwrap().name, "t04-a-late-finish-goes-to-its-old-parent");
    assert_eq!(library::find("t13"), None, "several begin like this");
    assert_eq!(library::find("nonsense"), None);
}

#[test]
fn every_script_says_what_it_shows_and_what_a_client_makes_of_it() {
    for script in library::SCRIPTS {
        let parsed = script.parse().unwrap_or_else(|error| panic!("{}: {error}", script.name));
        assert!(!parsed.about().is_empty(), "{} does not say what it shows", script.name);
        assert!(!parsed.rules().is_empty(), "{} names no rule", script.name);
        let expected = parsed.expectations();
        assert!(
            !expected.turns.is_empty() || !expected.requests.is_empty(),
            "{} expects nothing of a client",
            script.name
        );
        for turn in &expected.turns {
            let is_said = turn.finish_reason.is_some() || turn.end != TurnEnd::Idle;
            assert!(is_said, "{}: nothing is said about a turn of {}", script.name, turn.session);
            // A turn that ends well has its receipt first and the idle last.
            if turn.end == TurnEnd::Idle {
                let kinds: Vec<String> = turn.notifications.iter().map(shown).collect();
                assert_eq!(kinds.first().map(String::as_str), Some("agent/inbox/spliced"), "{}", script.name);
                assert_eq!(kinds.last().map(String::as_str), Some("session.status idle"), "{}", script.name);
            }
        }
    }
}

fn shown(notification: &ExpectedNotification) -> String {
    driver::kind(&json!({"method": notification.method, "params": notification.params}))
}

/// The expectations of the scripts against the reference implementation of the rules T2 to T7 and T10.
#[test]
fn what_the_scripts_expect_is_what_the_rules_say() {
    let mut notifications = 0;
    for script in library::SCRIPTS {
        let expected = script.parse().unwrap().expectations();
        let mut router = Router::default();
        let mut names = BTreeMap::new();
        let mut routed: BTreeMap<&str, Vec<&ExpectedNotification>> = BTreeMap::new();
        let mut unmatched = Vec::new();
        for subscription in &expected.subscriptions {
            let key = router.subscribe(&SessionId::new(subscription.root.as_str()).unwrap());
            names.insert(key, subscription.root.as_str());
            routed.insert(&subscription.root, Vec::new());
        }
        for notification in &expected.notifications {
            notifications += 1;
            let route = router.route(routed_by(notification));
            if route.is_unmatched() {
                unmatched.push(notification);
            }
            for key in route.matched() {
                routed.get_mut(names[key]).unwrap().push(notification);
            }
        }
        for subscription in &expected.subscriptions {
            let says = lines(subscription.notifications.iter());
            assert_eq!(
                says,
                lines(routed[&*subscription.root].iter().copied()),
                "{}: lines for {}",
                script.name,
                subscription.root
            );
        }
        assert_eq!(lines(expected.unmatched.iter()), lines(unmatched.into_iter()), "{}", script.name);
        for (session, path) in &expected.paths {
            let found: Vec<String> =
                router.path(session).iter().map(|session| session.as_str().to_owned()).collect();
            assert_eq!(&found, path, "{}: the path of {session}", script.name);
        }
    }
    assert!(notifications > 20_000, "{notifications}");
}

fn lines<'n>(notifications: impl Iterator<Item = &'n ExpectedNotification>) -> Vec<u32> {
    notifications.map(|notification| notification.line).collect()
}

fn routed_by(notification: &ExpectedNotification) -> Notification<'_> {
    let Some(params) = &notification.params else { return Notification::Unrouted };
    let text = |name: &str| params.get(name).and_then(Value::as_str);
    let (parent, child) =
        (text("parentSessionId").unwrap_or_default(), text("childSessionId").unwrap_or_default());
    match notification.method.as_str() {
        "subagent.started" => Notification::Started { parent, child },
        "subagent.finished" => Notification::Finished { parent, child },
        _ => text("sessionId").map_or(Notification::Unrouted, |session| Notification::Session { session }),
    }
}

/// The drive, as [`Expectations`] describes it, over lines.
async fn drive(driver: &mut Driver, expected: &Expectations) -> Vec<Value> {
    let mut seen = Vec::new();
    driver.send(&request("init", "initialize", json!({"cwd": "/w"}))).await;
    let prompts = (0..).zip(&expected.turns);
    let mut idles = 0;
    for (number, turn) in prompts {
        driver.send(&prompt(&format!("prompt-{number}"), &turn.session, PROMPT)).await;
        if turn.end == TurnEnd::Idle && !expected.prompts_at_once {
            let last = turn.notifications.last().unwrap();
            let idle = json!({"jsonrpc": "2.0", "method": last.method, "params": last.params});
            while idles <= number {
                let Some(message) = next(driver).await else { return seen };
                idles += usize::from(message == idle);
                seen.push(message);
            }
        }
    }
    for (method, _) in &expected.requests {
        driver.send(&request(method.as_str(), method, json!({"sessionId": "root"}))).await;
    }
    driver.send(&request("rest", "fake-runtime/rest", json!({}))).await;
    while let Some(message) = next(driver).await {
        let is_rest = message["id"] == "rest";
        seen.push(message);
        if is_rest {
            break;
        }
    }
    seen
}

/// The next message, requests of the script answered on the way, junk passed over.
async fn next(driver: &mut Driver) -> Option<Value> {
    loop {
        let line = driver.next_line().await?;
        if line.len() > FRAME_LIMIT_BYTES + 1 || !line.ends_with(b"\n") {
            continue;
        }
        let Ok(message) = serde_json::from_slice::<Value>(&line) else { continue };
        if message.get("method").is_some() && message.get("id").is_some() {
            let error = json!({"code": -32601, "message": "unknown"});
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
            driver.send(&answer.to_string()).await;
            continue;
        }
        if message.is_object() {
            return Some(message);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_script_writes_what_it_says() {
    for script in library::SCRIPTS {
        let parsed = script.parse().unwrap();
        let expected = parsed.expectations();
        let player = Player::new(parsed);
        let gates = player.gates().clone();
        for gate in ["late-answer", "late-reply"] {
            gates.open(gate);
        }
        let mut driver = Driver::play(player);
        // A script that reads no more, or writes no more, is left by closing its input.
        let seen =
            tokio::time::timeout(std::time::Duration::from_secs(7_000), drive(&mut driver, &expected)).await;
        let seen = match seen {
            Ok(seen) => seen,
            Err(_) => {
                assert_eq!(script.name, "w07-it-reads-no-more");
                continue;
            }
        };
        let notifications: Vec<&Value> =
            seen.iter().filter(|message| message.get("method").is_some()).collect();
        assert_eq!(notifications.len(), expected.notifications.len(), "{}", script.name);
        for (seen, expected) in notifications.iter().zip(&expected.notifications) {
            assert_eq!(seen["method"], expected.method, "{}: line {}", script.name, expected.line);
            if !expected.is_sample {
                assert_eq!(
                    seen.get("params"),
                    expected.params.as_ref(),
                    "{}: line {}",
                    script.name,
                    expected.line
                );
            }
        }
        // The prompts are answered with the ids that the expectations name.
        for (number, turn) in (0..).zip(&expected.turns) {
            let reply = seen.iter().find(|message| message["id"] == format!("prompt-{number}"));
            if turn.end == TurnEnd::Idle {
                assert_eq!(reply.unwrap()["result"]["messageId"], turn.message, "{}", script.name);
            }
        }
    }
}
