//! Random streams: everything follows from the seed.

mod kinds;
mod turns;

use std::collections::HashMap;

use crate::streams::{Features, Frame, Meaning, NEXT, Operation, Step, Stream, random::Random};

/// The least and the greatest number of lines of a stream.
pub const LENGTHS: (usize, usize) = (50, 2000);

/// The stream of a seed.
#[must_use]
pub fn stream(seed: u64) -> Stream {
    let mut world = World::new(seed);
    world.live();
    Stream {
        name: format!("seed {seed}"),
        steps: world.steps,
        operations: world.operations,
        features: world.features,
    }
}

/// What is known while a stream is made.
struct World {
    random: Random,
    steps: Vec<Step>,
    operations: Vec<Operation>,
    features: Features,
    /// The lines that there are to be.
    length: usize,
    /// Sessions of trees that may be watched or run, and everything started below them or elsewhere.
    sessions: Vec<String>,
    roots: Vec<String>,
    parents: HashMap<String, String>,
    /// Every parent a child ever had, latest last.
    parents_ever: HashMap<String, Vec<String>>,
    seqs: HashMap<String, u64>,
    /// Roots of live subscriptions, one entry each; an ended one is `None`.
    watches: Vec<Option<String>>,
    runs: Vec<turns::Run>,
    tags: u32,
    messages: u32,
    /// Whether this stream holds what two clients take differently.
    wild: bool,
    dies: bool,
    dead: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // Short ones are as telling as long ones and cost less: the square makes them frequent.
        let share = random.below(1000) * random.below(1000);
        let length = match seed % 50 {
            // A line may bring up to three more than were asked for.
            0 => LENGTHS.1 - 4,
            1 => LENGTHS.0,
            _ => LENGTHS.0 + share * (LENGTHS.1 - LENGTHS.0) / 1_000_000 * 3 / 4,
        };
        let roots: Vec<String> = ["root", "r/1", "wurzel-ü", "🌳"].map(str::to_owned).to_vec();
        let wild = random.percent(8);
        let dies = random.percent(3);
        Self {
            random,
            steps: Vec::new(),
            operations: Vec::new(),
            features: Features::default(),
            length,
            sessions: roots.iter().cloned().chain(["foreign".to_owned()]).collect(),
            roots,
            parents: HashMap::new(),
            parents_ever: HashMap::new(),
            seqs: HashMap::new(),
            watches: Vec::new(),
            runs: Vec::new(),
            tags: 0,
            messages: 0,
            wild,
            dies,
            dead: false,
        }
    }

    /// Turns one after another, with what comes between them, until there are enough lines.
    fn live(&mut self) {
        let three = self.random.percent(60);
        let at_first = if three { 2 } else { self.random.below(3) };
        for _ in 0..at_first {
            self.watch();
        }
        let lines = self.random.below(12);
        self.between(lines);
        while !self.dead {
            let left = self.length.saturating_sub(self.frames());
            if left < 70 {
                self.between(left);
                break;
            }
            // A turn takes what is left, or a part of it.
            let lines = if self.random.one_in(2) { left - 30 } else { self.random.between(25, left - 30) };
            let at_once = if three && self.random.one_in(2) { 3 } else { self.random.between(1, 2) };
            self.turn(at_once, lines);
            if self.dead {
                break;
            }
            let lines = self.random.below(8).min(self.length.saturating_sub(self.frames()));
            self.between(lines);
            if self.random.one_in(4) && self.watches.iter().flatten().count() < 4 {
                self.watch();
            } else if !three && self.random.one_in(6) {
                self.unwatch();
            }
        }
    }

    fn frames(&self) -> usize {
        usize::try_from(self.features.frames).unwrap()
    }

    fn watch(&mut self) {
        let root = if self.random.one_in(5) {
            self.random.of(&self.sessions).clone()
        } else {
            self.random.of(&self.roots).clone()
        };
        self.operations.push(Operation::Watch { root: root.clone() });
        self.watches.push(Some(root));
    }

    fn unwatch(&mut self) {
        let watch = self.random.below(self.watches.len());
        if self.watches.get(watch).is_some_and(Option::is_some) {
            self.operations.push(Operation::Unwatch { watch });
            self.watches[watch] = None;
        }
    }

    /// Lines outside of any turn, then the answer that they are read.
    fn between(&mut self, lines: usize) {
        let tag = self.await_request(NEXT, None);
        let end = self.frames() + lines;
        while self.frames() < end {
            self.any_frame();
        }
        self.operations.push(Operation::Next);
        self.answer(tag, r#""result":{}"#);
    }

    fn await_request(&mut self, method: &str, session: Option<&str>) -> u32 {
        self.tags += 1;
        self.steps.push(Step::Await {
            tag: self.tags,
            method: method.to_owned(),
            session: session.map(str::to_owned),
        });
        self.tags
    }

    fn answer(&mut self, tag: u32, members: &str) {
        self.steps.push(Step::Answer { tag, members: members.to_owned() });
    }

    /// The only way for a line into the stream: what it changes is kept, what occurs is counted.
    fn push(&mut self, frame: Frame) {
        let live = self.live_roots();
        self.features.frames += 1;
        self.features.under_three_subscriptions += u32::from(live.len() >= 3);
        match &frame.meaning {
            Meaning::Started { parent, child } => {
                let (parent, child) = (parent.clone(), child.clone());
                let before = self.parents.insert(child.clone(), parent.clone());
                self.features.reused_ids += u32::from(before.is_some_and(|before| before != parent));
                self.parents_ever.entry(child.clone()).or_default().push(parent.clone());
                for session in [parent, child.clone()] {
                    if !self.sessions.contains(&session) {
                        self.sessions.push(session);
                    }
                }
                self.count_reach(&child, &live);
            }
            Meaning::Finished { parent, child } => {
                let carried = self.reached(parent, &live);
                if let Some(present) = self.parents.get(child)
                    && present != parent
                {
                    self.features.late_finishes += u32::from(self.reached(present, &live) != carried);
                }
                let parent = parent.clone();
                self.count_reach(&parent, &live);
            }
            Meaning::Session { session, says } => {
                let (session, says) = (session.clone(), *says);
                self.count_reach(&session, &live);
                if says && self.runs.iter().any(|run| run.is_below(&session, &self.parents)) {
                    self.features.last_words_of_a_descendant += 1;
                }
            }
            Meaning::Nothing => {}
            Meaning::Wild(_) => self.features.wild += 1,
        }
        self.steps.push(Step::Frame(frame));
    }

    fn live_roots(&self) -> Vec<String> {
        let watched = self.watches.iter().flatten();
        watched.chain(self.runs.iter().filter(|run| run.is_live()).map(|run| &run.root)).cloned().collect()
    }

    fn count_reach(&mut self, session: &str, live: &[String]) {
        self.features.foreign += u32::from(self.reached(session, live).is_empty());
        self.features.on_a_cycle += u32::from(self.path(session).1);
    }

    /// Which live subscriptions a session's path meets, by their places.
    fn reached(&self, session: &str, live: &[String]) -> Vec<usize> {
        let path = self.path(session).0;
        (0..live.len()).filter(|place| path.contains(&live[*place].as_str())).collect()
    }

    /// The sessions upwards, and whether the path came back to one of them.
    fn path<'a>(&'a self, session: &'a str) -> (Vec<&'a str>, bool) {
        let mut path = Vec::new();
        let mut at = Some(session);
        while let Some(id) = at {
            if path.contains(&id) {
                return (path, true);
            }
            path.push(id);
            at = self.parents.get(id).map(String::as_str);
        }
        (path, false)
    }

    fn seq(&mut self, session: &str) -> u64 {
        let seq = self.seqs.entry(session.to_owned()).or_insert(0);
        *seq += 1;
        *seq
    }

    fn message_id(&mut self) -> String {
        self.messages += 1;
        format!("message-{}", self.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_follows_from_its_seed() {
        for seed in 0..20 {
            assert_eq!(stream(seed).script(), stream(seed).script());
            assert_eq!(stream(seed).plan(), stream(seed).plan());
        }
        assert_ne!(stream(2).script(), stream(3).script());
    }
}
