//! A naive model of what a client has to make of a wire (T2–T13), and a play of the same wire to a real client.
//!
//! The model knows no subscription keys, no marks and no caches: for every notification it walks up from the session
//! and asks each listener whether its root is on the way.
#![allow(dead_code, reason = "not every test file uses all of it")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use offspring_client::{
    ChildRun, ClientError, Limits, Notification, Session, SessionId, Subscription, SubscriptionEnd, TurnEnd,
    TurnError, TurnResult,
};
use offspring_protocol::rpc::Id;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::peer::Peer;

/// So few that they meet often; the first is no id at all.
pub(crate) const SESSIONS: [&str; 7] = ["", "r", "a", "b", "c", "d", "e\u{2028}\"\\"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Started(usize, usize),
    Finished(usize, usize),
    Status(usize, bool),
    Text(usize),
    TurnEnd(usize),
    Receipt(usize, usize),
    Other(usize),
    Unrouted,
    Junk,
    Subscribe(usize),
    SubscribeFiltered(usize),
    Unsubscribe(usize),
    Prompt { root: usize, tree: bool },
    Answer(usize),
}

impl Step {
    /// Any bytes are steps.
    pub(crate) fn read(bytes: &[u8]) -> Vec<Self> {
        let session = |byte: u8| usize::from(byte) % SESSIONS.len();
        let named = |byte: u8| 1 + usize::from(byte) % (SESSIONS.len() - 1);
        let step = |piece: &[u8]| {
            let (what, one, two) = (piece[0], piece[1], piece[2]);
            match what % 24 {
                0..=2 => Self::Started(session(one), session(two)),
                3 | 4 => Self::Finished(session(one), session(two)),
                5 | 6 => Self::Status(session(one), two % 3 != 0),
                7 => Self::Text(session(one)),
                8 => Self::TurnEnd(session(one)),
                9 => Self::Receipt(session(one), usize::from(two) % 4),
                // Those that turns are about.
                16 | 20 | 21 => Self::Receipt(1 + usize::from(one) % 2, usize::from(two) % 2),
                17 | 22 => Self::Status(1 + usize::from(one) % 2, true),
                18 => Self::Prompt { root: 1 + usize::from(one) % 2, tree: two % 2 == 0 },
                19 | 23 => Self::Answer(0),
                10 => Self::Subscribe(named(one)),
                11 => Self::Unsubscribe(usize::from(one)),
                12 => Self::SubscribeFiltered(session(one)),
                13 => Self::Prompt { root: named(one), tree: two % 2 == 0 },
                14 => Self::Answer(usize::from(one)),
                _ => match two % 3 {
                    0 => Self::Unrouted,
                    1 => Self::Junk,
                    _ => Self::Other(session(one)),
                },
            }
        };
        bytes.chunks_exact(3).take(120).map(step).collect()
    }
}

/// The line a step writes, if it writes one.
fn line(step: Step, tag: usize) -> Option<String> {
    let event = |session: usize, kind: &str, data: Value| json!({"method": "session.event", "params": {"sessionId": SESSIONS[session], "tag": tag, "event": {"type": kind, "data": data}}});
    let lifecycle = |method: &str, parent: usize, child: usize| json!({"method": method, "params": {"parentSessionId": SESSIONS[parent], "childSessionId": SESSIONS[child], "tag": tag, "status": "ok"}});
    Some(match step {
        Step::Started(parent, child) => lifecycle("subagent.started", parent, child).to_string(),
        Step::Finished(parent, child) => lifecycle("subagent.finished", parent, child).to_string(),
        Step::Status(session, idle) => {
            let status = if idle { "idle" } else { "running" };
            json!({"method": "session.status", "params": {"sessionId": SESSIONS[session], "status": status, "tag": tag}})
                .to_string()
        }
        Step::Text(session) => {
            let content = json!([{"type": "text", "text": format!("text {tag}")}]);
            event(session, "assistant/message", json!({"message": {"content": content}})).to_string()
        }
        Step::TurnEnd(session) => {
            event(session, "turn/end", json!({"reason": {"kind": format!("reason {tag}")}})).to_string()
        }
        Step::Receipt(session, message) => {
            event(session, "agent/inbox/spliced", json!({"inserted": [{"id": format!("m{message}")}]}))
                .to_string()
        }
        Step::Other(session) => {
            json!({"method": "later/one", "params": {"sessionId": SESSIONS[session], "tag": tag}}).to_string()
        }
        Step::Unrouted => json!({"method": "later/two", "params": {"tag": tag}}).to_string(),
        Step::Junk => format!("{{\"method\": {tag}"),
        Step::Subscribe(_)
        | Step::SubscribeFiltered(_)
        | Step::Unsubscribe(_)
        | Step::Prompt { .. }
        | Step::Answer(_) => return None,
    })
}

/// What was seen of a turn, by either side.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) notifications: Vec<u64>,
    pub(crate) events: Vec<u64>,
    pub(crate) final_response: Option<String>,
    pub(crate) finish_reason: Option<String>,
    pub(crate) end: Option<&'static str>,
    pub(crate) children: Vec<String>,
}

#[derive(Debug)]
struct ModelTurn {
    root: usize,
    tree: bool,
    /// The message that its answer named, once it did.
    message: Option<usize>,
    before: Vec<(usize, Step)>,
    received: bool,
    root_idle: bool,
    done: bool,
    seen: Seen,
    runs: Vec<((usize, usize), Vec<&'static str>)>,
}

impl ModelTurn {
    fn take(&mut self, tag: usize, step: Step) {
        if self.message.is_none() {
            self.before.push((tag, step));
        } else if !self.done {
            self.feed(tag, step);
        }
    }

    fn attach(&mut self, message: usize) {
        self.message = Some(message);
        for (tag, step) in std::mem::take(&mut self.before) {
            if !self.done {
                self.feed(tag, step);
            }
        }
    }

    fn feed(&mut self, tag: usize, step: Step) {
        let own_event = match step {
            Step::Text(session) | Step::TurnEnd(session) | Step::Receipt(session, _) => session == self.root,
            _ => false,
        };
        if !self.received {
            match step {
                Step::Receipt(session, message) if session == self.root && Some(message) == self.message => {
                    self.received = true;
                }
                _ => return,
            }
        }
        self.seen.notifications.push(tag as u64);
        if own_event {
            self.seen.events.push(tag as u64);
        }
        match step {
            Step::Text(session) if session == self.root => {
                self.seen.final_response = Some(format!("text {tag}"));
            }
            Step::TurnEnd(session) if session == self.root => {
                self.seen.finish_reason = Some(format!("reason {tag}"));
            }
            Step::Status(session, idle) if session == self.root => {
                self.root_idle = idle;
                if idle && !self.tree {
                    self.end("idle");
                }
            }
            Step::Started(parent, child) if parent != child && parent != 0 && child != 0 => {
                let runs = self.runs_of(parent, child);
                if runs.last() != Some(&"open") {
                    runs.push("open");
                }
            }
            Step::Finished(parent, child) if parent != 0 && child != 0 => {
                let runs = self.runs_of(parent, child);
                match runs.last_mut() {
                    Some(last) if *last == "open" => *last = "finished",
                    Some(_) => {}
                    None => runs.push("finished"),
                }
            }
            _ => {}
        }
    }

    fn runs_of(&mut self, parent: usize, child: usize) -> &mut Vec<&'static str> {
        let at = self.runs.iter().position(|(key, _)| *key == (parent, child)).unwrap_or_else(|| {
            self.runs.push(((parent, child), Vec::new()));
            self.runs.len() - 1
        });
        &mut self.runs[at].1
    }

    fn end(&mut self, how: &'static str) {
        self.seen.end = Some(how);
        self.done = true;
    }

    fn picture(mut self, gone: bool) -> Seen {
        for ((parent, child), runs) in self.runs {
            let run = |run: &&str| if gone && *run == "open" { "interrupted" } else { *run }.to_owned();
            let runs: Vec<String> = runs.iter().map(run).collect();
            self.seen.children.push(format!("{} {} {}", SESSIONS[parent], SESSIONS[child], runs.join(",")));
        }
        self.seen
    }
}

/// Everything a wire says of sessions.
#[derive(Debug, Default)]
struct World {
    parents: BTreeMap<usize, usize>,
    open: BTreeSet<(usize, usize)>,
    running: BTreeSet<usize>,
}

impl World {
    /// A session and all above it, each once (T7).
    fn above(&self, session: usize) -> BTreeSet<usize> {
        let mut above = BTreeSet::new();
        let mut at = Some(session).filter(|session| *session != 0);
        while let Some(session) = at {
            at = if above.insert(session) { self.parents.get(&session).copied() } else { None };
        }
        above
    }

    /// Records what a step says, and whose it is: the roots (T2–T6).
    fn says(&mut self, step: Step) -> BTreeSet<usize> {
        match step {
            Step::Started(parent, child) => {
                if parent != 0 && child != 0 && parent != child {
                    self.parents.insert(child, parent);
                    self.open.insert((parent, child));
                }
                // An invalid one goes to whom its ids reach (T2); of a valid one both are on one path.
                &self.above(parent) | &self.above(child)
            }
            Step::Finished(parent, child) => {
                let ended = self.open.remove(&(parent, child));
                if ended && !self.open.iter().any(|(_, other)| *other == child) {
                    self.running.remove(&child);
                }
                let mut roots = self.above(parent);
                roots.extend(Some(child).filter(|child| *child != 0));
                roots
            }
            Step::Status(session, idle) => {
                if idle || session == 0 {
                    self.running.remove(&session);
                } else {
                    self.running.insert(session);
                }
                self.above(session)
            }
            Step::Text(session)
            | Step::TurnEnd(session)
            | Step::Receipt(session, _)
            | Step::Other(session) => self.above(session),
            _ => BTreeSet::new(),
        }
    }

    fn is_at_rest(&self, root: usize) -> bool {
        !self.open.iter().any(|(parent, _)| self.above(*parent).contains(&root))
            && !self.running.iter().any(|session| self.above(*session).contains(&root))
    }

    fn interrupted(&self, root: usize) -> Vec<String> {
        let all: BTreeSet<usize> =
            self.open.iter().map(|(_, child)| *child).chain(self.running.iter().copied()).collect();
        let below = all.into_iter().filter(|session| self.above(*session).contains(&root));
        let mut below: Vec<String> = below.map(|session| SESSIONS[session].to_owned()).collect();
        below.sort();
        below
    }
}

/// A subscription on both sides.
struct Listener {
    root: Option<usize>,
    filter: usize,
    expected: Vec<u64>,
    real: Subscription,
}

/// A turn on both sides.
struct Under {
    model: ModelTurn,
    request: Option<Id>,
    message: usize,
    task: JoinHandle<Result<TurnResult, TurnError>>,
}

fn tag(notification: &Notification) -> u64 {
    let params: Value = serde_json::from_str(notification.params().unwrap().get()).unwrap();
    params["tag"].as_u64().unwrap()
}

fn picture(result: &TurnResult) -> Seen {
    let run = |run: &ChildRun| match run {
        ChildRun::Open => "open",
        ChildRun::Interrupted => "interrupted",
        _ => "finished",
    };
    let children = result.tree.children().iter().map(|child| {
        let runs: Vec<&str> = child.runs.iter().map(run).collect();
        format!("{} {} {}", child.parent, child.session, runs.join(","))
    });
    Seen {
        notifications: result.notifications.iter().map(tag).collect(),
        events: result.events.iter().map(tag).collect(),
        final_response: result.final_response.clone(),
        finish_reason: result.finish_reason.clone(),
        end: result.end.map(|end| if end == TurnEnd::TreeAtRest { "tree" } else { "idle" }),
        children: children.collect(),
    }
}

/// Everything that is there now.
fn drained(real: &mut Subscription) -> (Vec<u64>, Option<SubscriptionEnd>) {
    let mut seen = Vec::new();
    loop {
        match real.try_next() {
            Some(Ok(one)) => seen.push(tag(&one)),
            Some(Err(end)) => return (seen, Some(end)),
            None => return (seen, None),
        }
    }
}

async fn start_turn(session: Session, tree: bool) -> Result<TurnResult, TurnError> {
    if tree { session.run_tree("go").await } else { session.run("go").await }
}

/// How many of each kind there were, so that a test knows that it has seen some.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Played {
    pub(crate) root_turns: usize,
    pub(crate) tree_turns: usize,
    pub(crate) open_turns: usize,
    pub(crate) unmatched: usize,
    pub(crate) delivered: usize,
    /// Sessions that are above themselves at the end (T7).
    pub(crate) cycles: usize,
}

/// Plays the steps to a client and to the model, and compares everything both have seen.
pub(crate) async fn compare(steps: &[Step]) -> Played {
    let limits = Limits { receipt_within: std::time::Duration::from_secs(3_600), ..Limits::default() };
    let (mut peer, harness) = Peer::new(limits).await;
    let client = harness.client().clone();
    let mut world = World::default();
    let mut listeners: VecDeque<Listener> = VecDeque::new();
    let mut turns: Vec<Under> = Vec::new();
    let mut unmatched = Vec::new();
    let mut played = Played::default();
    let mut messages = 0;
    for (number, step) in steps.iter().copied().enumerate() {
        match step {
            Step::Subscribe(root) => {
                let real = client.subscribe(&SessionId::new(SESSIONS[root]).unwrap());
                listeners.push_back(Listener { root: Some(root), filter: 0, expected: Vec::new(), real });
            }
            Step::SubscribeFiltered(wanted) => {
                let real = client.subscribe_filtered(move |one| one.session_id() == Some(SESSIONS[wanted]));
                listeners.push_back(Listener { root: None, filter: wanted, expected: Vec::new(), real });
            }
            Step::Unsubscribe(at) if !listeners.is_empty() => {
                let mut ended = listeners.remove(at % listeners.len()).unwrap();
                assert_eq!(
                    drained(&mut ended.real).0,
                    ended.expected,
                    "a subscription that ended at step {number}"
                );
            }
            // Four messages have names.
            Step::Prompt { root, tree } if messages < 4 => {
                let session = harness.session(SessionId::new(SESSIONS[root]).unwrap());
                let task = tokio::spawn(start_turn(session, tree));
                let request = Some(peer.request("session/prompt").await);
                let model = ModelTurn {
                    root,
                    tree,
                    message: None,
                    before: Vec::new(),
                    received: false,
                    root_idle: false,
                    done: false,
                    seen: Seen::default(),
                    runs: Vec::new(),
                };
                turns.push(Under { model, request, message: messages, task });
                messages += 1;
            }
            Step::Answer(at) => {
                let mut open: Vec<&mut Under> =
                    turns.iter_mut().filter(|turn| turn.request.is_some()).collect();
                if open.is_empty() {
                    continue;
                }
                let at = at % open.len();
                let turn = &mut open[at];
                let request = turn.request.take().unwrap();
                peer.answer(&request, &json!({"messageId": format!("m{}", turn.message)}).to_string()).await;
                if turn.model.tree {
                    // Whatever this one knows, it does not know the method.
                    let wait = peer.request("session/wait").await;
                    peer.refuse(&wait, "unknown DeepSeek Harness SDK runtime method: session/wait").await;
                }
                let message = turn.message;
                turn.model.attach(message);
            }
            _ => {}
        }
        if let Some(line) = line(step, number) {
            peer.say(&[line]).await;
            if step != Step::Junk {
                let roots = world.says(step);
                let mut matched = false;
                let session = match step {
                    Step::Status(session, _)
                    | Step::Text(session)
                    | Step::TurnEnd(session)
                    | Step::Receipt(session, _)
                    | Step::Other(session) => Some(session),
                    _ => None,
                };
                for listener in &mut listeners {
                    let wants = match listener.root {
                        Some(root) => roots.contains(&root),
                        None => session == Some(listener.filter),
                    };
                    if wants {
                        matched = true;
                        played.delivered += 1;
                        listener.expected.push(number as u64);
                    }
                }
                for turn in turns.iter_mut().filter(|turn| roots.contains(&turn.model.root)) {
                    // One that has ended has unsubscribed.
                    if !turn.model.done {
                        matched = true;
                        turn.model.take(number, step);
                    }
                }
                // T10
                if !matched {
                    unmatched.push(number as u64);
                }
            }
        }
        peer.round_trip(&harness).await;
        for turn in &mut turns {
            let model = &mut turn.model;
            if model.tree && !model.done && model.received && model.root_idle && world.is_at_rest(model.root)
            {
                model.end("tree");
            }
        }
        settle(&mut turns, number, &mut played).await;
    }
    drop(peer);
    // Its end comes when the end of the wire has been read.
    let mut seen = Vec::new();
    while let Some(Ok(one)) = client.next_unmatched().await {
        seen.push(tag(&one));
    }
    assert_eq!(seen, unmatched, "what matched nothing");
    played.unmatched = unmatched.len();
    for turn in turns {
        played.open_turns += usize::from(!turn.model.seen.notifications.is_empty());
        let error = turn.task.await.unwrap().expect_err("a turn that the model has open");
        assert!(matches!(error.reason, ClientError::RuntimeGone(_)), "{error}");
        assert_eq!(picture(&error.partial), turn.model.picture(true), "the rest of a turn");
    }
    for mut listener in listeners {
        let (seen, end) = drained(&mut listener.real);
        assert_eq!(seen, listener.expected, "a subscription to {:?}", listener.root);
        if let Some(root) = listener.root {
            let Some(SubscriptionEnd::RuntimeGone { interrupted, .. }) = end else { panic!("{end:?}") };
            let interrupted: Vec<&str> = interrupted.iter().map(|id| id.as_str()).collect();
            assert_eq!(interrupted, world.interrupted(root), "interrupted below {root}");
        }
    }
    for (session, name) in SESSIONS.iter().enumerate().skip(1) {
        let path = client.path(name);
        let path: BTreeSet<&str> = path.iter().map(|id| id.as_str()).collect();
        let above: BTreeSet<&str> = world.above(session).into_iter().map(|one| SESSIONS[one]).collect();
        assert_eq!(path, above, "the path of {session}");
        let parent = world.parents.get(&session);
        played.cycles += usize::from(parent.is_some_and(|parent| world.above(*parent).contains(&session)));
    }
    played
}

/// Takes the results of the turns that the model has ended.
async fn settle(turns: &mut Vec<Under>, number: usize, played: &mut Played) {
    let mut at = 0;
    while at < turns.len() {
        if !turns[at].model.done {
            at += 1;
            continue;
        }
        let turn = turns.remove(at);
        *(if turn.model.tree { &mut played.tree_turns } else { &mut played.root_turns }) += 1;
        let bound = std::time::Duration::from_secs(10);
        let result =
            tokio::time::timeout(bound, turn.task).await.expect("the model's turn has ended").unwrap();
        let result = result.unwrap_or_else(|error| panic!("step {number}: {error}"));
        assert_eq!(picture(&result), turn.model.picture(false), "a turn that ended at step {number}");
    }
}

/// Runs a comparison on a runtime of its own.
pub(crate) fn play(steps: &[Step]) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(compare(steps))
}
