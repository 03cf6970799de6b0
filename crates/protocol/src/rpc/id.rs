//! The id of a request.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// The id of a request, as its sender wrote it.
///
/// Two ids are the same when their kind and text are: `1`, `1.0` and `"1"` are three ids. A peer must
/// give an id back as it got it, so nothing is gained by comparing numbers as numbers, and large or
/// fractional ones would be lost on the way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Id {
    /// `null`: the answer to something whose id could not be read.
    Null,
    /// Any JSON number, kept as text.
    Number(IdNumber),
    /// A string, unescaped.
    String(String),
}

/// A JSON number kept as the text it was written as.
#[derive(Clone)]
pub struct IdNumber(Box<RawValue>);

impl IdNumber {
    /// The number as it stands in the frame, `-1.50e3` for example.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for IdNumber {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for IdNumber {}

impl Hash for IdNumber {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for IdNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Id {
    /// Reads an id from the raw JSON of an `id` member; `None` for an array, an object, a boolean or a
    /// string that is no text (a lone surrogate).
    pub(super) fn from_raw(raw: &RawValue) -> Option<Self> {
        match raw.get().as_bytes().first()? {
            b'n' => Some(Self::Null),
            b'"' => serde_json::from_str(raw.get()).ok().map(Self::String),
            b'-' | b'0'..=b'9' => Some(Self::Number(IdNumber(raw.to_owned()))),
            _ => None,
        }
    }
}

impl From<u64> for Id {
    fn from(id: u64) -> Self {
        // A decimal integer always is a JSON number; were it not, `null` is still a legal id.
        RawValue::from_string(id.to_string()).map_or(Self::Null, |raw| Self::Number(IdNumber(raw)))
    }
}

impl From<&str> for Id {
    fn from(id: &str) -> Self {
        Self::String(id.to_owned())
    }
}

impl From<String> for Id {
    fn from(id: String) -> Self {
        Self::String(id)
    }
}

/// The id as JSON: `7`, `"a\"b"`, `null`.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Number(number) => f.write_str(number.as_str()),
            Self::String(text) => f.write_str(&serde_json::to_string(text).map_err(|_| fmt::Error)?),
        }
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Number(number) => number.0.serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
        }
    }
}
