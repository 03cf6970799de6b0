//! Reading the JSON document of an export, a session or an event at a time.
//!
//! It is read twice. The first time all of it is read and everything but the events is kept: what is no whole
//! document, or not one that can be imported, is found before anything is written. The second time its events
//! go by. Keys may come in any order.

use std::{cell::Cell, fmt, rc::Rc};

use offspring_protocol::{Origin, RawEvent, RunId, RunRecord, SessionData, SessionId, Timestamp};
use offspring_sessions::store::LogRow;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::source::Source;
use crate::{
    export::document::{Counts, FORMAT, VERSION},
    failure::Failure,
    text::plain,
};

/// A session or an event of more bytes is refused: no store holds it.
const MAX_ITEM_BYTES: u64 = 1 << 30;

/// Everything of a document but its events.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) root: SessionId,
    pub(crate) last_seq: u64,
    pub(crate) origin: Option<Origin>,
    pub(crate) sessions: Vec<(SessionData, Vec<RunRecord>)>,
    pub(crate) counts: Counts,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a session with its runs")]
struct SessionLine {
    session: SessionData,
    runs: Vec<RunRecord>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an event")]
struct EventLine {
    seq: u64,
    at: Timestamp,
    session: SessionId,
    run: Option<RunId>,
    #[serde(default)]
    late: bool,
    kind: String,
    data: Box<RawValue>,
}

impl From<EventLine> for LogRow {
    fn from(line: EventLine) -> Self {
        let EventLine { seq, at, session, run, late, kind, data } = line;
        Self { seq, session, run, at, late, event: RawEvent::new(kind, data) }
    }
}

/// What was found so far.
#[derive(Default)]
struct Found {
    format: Option<String>,
    version: Option<u32>,
    program_version: Option<String>,
    top: Option<SessionId>,
    root: Option<SessionId>,
    last_seq: Option<u64>,
    /// An export says `null` where there is none.
    origin: Option<Option<Origin>>,
    sessions: Option<Vec<(SessionData, Vec<RunRecord>)>>,
    events: Option<u64>,
    counts: Option<Counts>,
}

impl Rows {
    /// Reads a whole document.
    pub(crate) fn read(source: &Source) -> Result<Self, Failure> {
        let mut reading = Reading::<fn(LogRow) -> bool>::new(None);
        reading.read(source).map_err(|error| source.problem(&error))?;
        let rows = reading.found.into_rows();
        rows.map_err(|problem| Failure::new(format!("{source}: {problem}; nothing was changed")))
    }
}

impl Found {
    fn into_rows(self) -> Result<Rows, String> {
        if self.format.is_none() || self.version.is_none() {
            return Err("this is no export: it does not say its format and version".to_owned());
        }
        let missing = |what: &str| format!("it has no {what}, so it is not a whole export");
        let root = self.root.ok_or_else(|| missing("root"))?;
        let top = self.top.ok_or_else(|| missing("top"))?;
        let last_seq = self.last_seq.ok_or_else(|| missing("last_seq"))?;
        let origin = self.origin.ok_or_else(|| missing("origin"))?;
        let sessions = self.sessions.ok_or_else(|| missing("sessions"))?;
        let events = self.events.ok_or_else(|| missing("events"))?;
        let counts = self.counts.ok_or_else(|| missing("counts"))?;
        let read = Counts { sessions: u64::try_from(sessions.len()).unwrap_or(u64::MAX), events };
        if read != counts {
            return Err(format!(
                "it says that it has {} sessions and {} events, and has {} and {}",
                counts.sessions, counts.events, read.sessions, read.events
            ));
        }
        if top != root {
            return Err(format!(
                "it holds {} and what is below, a part of the tree {}; only a whole tree can be imported: \
                 export its root",
                plain(top.as_str()),
                plain(root.as_str())
            ));
        }
        Ok(Rows { root, last_seq, origin, sessions, counts })
    }
}

/// Hands every event over, in the order of the document, until `take` has had enough.
pub(crate) fn events(source: &Source, take: impl FnMut(LogRow) -> bool) -> Result<(), Failure> {
    let mut reading = Reading::new(Some(take));
    match reading.read(source) {
        // Why is said by whoever takes no more.
        Err(_) if reading.enough => Ok(()),
        done => done.map_err(|error| source.problem(&error)),
    }
}

/// A document that is being read, either for its events or for the rest.
struct Reading<F> {
    found: Found,
    take: Option<F>,
    enough: bool,
    /// Bytes that the present item may still have.
    left: Rc<Cell<u64>>,
}

impl<F: FnMut(LogRow) -> bool> Reading<F> {
    fn new(take: Option<F>) -> Self {
        Self { found: Found::default(), take, enough: false, left: Rc::new(Cell::new(MAX_ITEM_BYTES)) }
    }

    fn read(&mut self, source: &Source) -> Result<(), serde_json::Error> {
        let reader = source.reader(Some(&self.left)).map_err(serde_json::Error::io)?;
        let mut json = serde_json::Deserializer::from_reader(reader);
        json.deserialize_map(Document(self))?;
        json.end()
    }

    /// Another item begins.
    fn item(&self) {
        self.left.set(MAX_ITEM_BYTES);
    }

    fn key<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
            place: &mut Option<T>,
            key: &str,
            map: &mut A,
        ) -> Result<(), A::Error> {
            match place.replace(map.next_value()?) {
                None => Ok(()),
                Some(_) => Err(A::Error::custom(format!("`{key}` is there twice"))),
            }
        }
        let found = &mut self.found;
        match key {
            "format" => {
                once(&mut found.format, key, map)?;
                match found.format.as_deref() {
                    Some(FORMAT) | None => Ok(()),
                    Some(other) => Err(A::Error::custom(format!(
                        "this is no export of a tree: its format is `{}`, not `{FORMAT}`",
                        plain(other)
                    ))),
                }
            }
            "version" => {
                once(&mut found.version, key, map)?;
                match found.version {
                    Some(1..=VERSION) | None => Ok(()),
                    Some(newer) => Err(A::Error::custom(format!(
                        "it has version {newer} of the format, and this program reads up to {VERSION}; \
                         import it with the version of offspring that wrote it, or a later one"
                    ))),
                }
            }
            "program_version" => once(&mut found.program_version, key, map),
            "top" => once(&mut found.top, key, map),
            "root" => once(&mut found.root, key, map),
            "last_seq" => once(&mut found.last_seq, key, map),
            "origin" => once(&mut found.origin, key, map),
            "counts" => once(&mut found.counts, key, map),
            "sessions" | "events" if self.is_twice(key) => {
                Err(A::Error::custom(format!("`{key}` is there twice")))
            }
            "sessions" => map.next_value_seed(Sessions(self)),
            "events" => map.next_value_seed(Events(self)),
            other => Err(A::Error::custom(format!("an export has no `{}`", plain(other)))),
        }
    }

    fn is_twice(&self, key: &str) -> bool {
        if key == "events" { self.found.events.is_some() } else { self.found.sessions.is_some() }
    }
}

struct Document<'a, F>(&'a mut Reading<F>);

impl<'de, F: FnMut(LogRow) -> bool> Visitor<'de> for Document<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an export of a tree")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.0.item();
            self.0.key(&key, &mut map)?;
        }
        Ok(())
    }
}

struct Sessions<'a, F>(&'a mut Reading<F>);

impl<'de, F: FnMut(LogRow) -> bool> DeserializeSeed<'de> for Sessions<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(LogRow) -> bool> Visitor<'de> for Sessions<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of sessions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut sessions = Vec::new();
        // Kept from the first reading.
        while self.0.take.is_some() && items.next_element::<IgnoredAny>()?.is_some() {
            self.0.item();
        }
        while let Some(SessionLine { session, runs }) = items.next_element()? {
            self.0.item();
            sessions.push((session, runs));
        }
        self.0.found.sessions = Some(sessions);
        Ok(())
    }
}

struct Events<'a, F>(&'a mut Reading<F>);

impl<'de, F: FnMut(LogRow) -> bool> DeserializeSeed<'de> for Events<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(LogRow) -> bool> Visitor<'de> for Events<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self(reading) = self;
        let mut count = 0;
        match &mut reading.take {
            None => {
                while items.next_element::<IgnoredAny>()?.is_some() {
                    reading.left.set(MAX_ITEM_BYTES);
                    count += 1;
                }
            }
            Some(take) => {
                while let Some(line) = items.next_element::<EventLine>()? {
                    reading.left.set(MAX_ITEM_BYTES);
                    count += 1;
                    if !take(line.into()) {
                        reading.enough = true;
                        return Err(A::Error::custom("enough"));
                    }
                }
            }
        }
        reading.found.events = Some(count);
        Ok(())
    }
}
