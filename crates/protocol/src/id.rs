//! Ids: opaque, non-empty, compared by bytes (rule T1).
//!
//! Nothing is ever parsed out of an id, and no order in time is derived from one.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The longest id that a store accepts, in bytes (rule T1). Longer ids are still routed.
pub const MAX_STORED_ID_BYTES: usize = 512;

/// Why a string is no id, or an id that no store accepts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadId {
    /// The string is empty: no id is.
    #[error("the {kind} is empty")]
    Empty {
        /// Which kind of id was asked for.
        kind: &'static str,
    },
    /// Longer than [`MAX_STORED_ID_BYTES`].
    #[error("the {kind} has {bytes} bytes; at most {MAX_STORED_ID_BYTES} can be stored")]
    TooLong {
        /// Which kind of id was asked for.
        kind: &'static str,
        /// Its length in bytes.
        bytes: usize,
    },
    /// Contains U+0000, which not every database can hold.
    #[error("the {kind} contains a NUL character and cannot be stored")]
    Nul {
        /// Which kind of id was asked for.
        kind: &'static str,
    },
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// Opaque and non-empty; cloning costs one reference count.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes any non-empty string as it is.
            ///
            /// # Errors
            /// [`BadId::Empty`] for an empty string.
            pub fn new(id: impl AsRef<str>) -> Result<Self, BadId> {
                let id = id.as_ref();
                if id.is_empty() { Err(BadId::Empty { kind: $kind }) } else { Ok(Self(Arc::from(id))) }
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether a store accepts this id (rule T1).
            ///
            /// # Errors
            /// [`BadId::TooLong`] and [`BadId::Nul`].
            pub fn check_storable(&self) -> Result<(), BadId> {
                if self.0.len() > MAX_STORED_ID_BYTES {
                    Err(BadId::TooLong { kind: $kind, bytes: self.0.len() })
                } else if self.0.contains('\0') {
                    Err(BadId::Nul { kind: $kind })
                } else {
                    Ok(())
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(id: &str) -> Result<Self, BadId> {
                Self::new(id)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(id: String) -> Result<Self, BadId> {
                Self::new(id)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("a non-empty ", $kind))
                    }
                    fn visit_str<E: de::Error>(self, id: &str) -> Result<$name, E> {
                        $name::new(id).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Visitor)
            }
        }
    )*};
}

ids! {
    /// A session: one conversation of one agent. New ones look like `ses_…`, but any string is one.
    SessionId = "session id";
    /// One run of a session, from its prompt to its terminal event (rule L12).
    RunId = "run id";
    /// The key of a delegation; a [`crate::TaskId`] adds the sessions it made.
    TaskKey = "task id";
    /// One message of a provider or of an agent.
    MessageId = "message id";
    /// The call of a tool inside a run.
    ToolCallId = "tool call id";
    /// The name of a node in a pool: an agent, a team or a team run.
    NodeName = "node name";
    /// The name of a pool: its manifest's name.
    PoolId = "pool id";
    /// A project: the root commit of a repository, or `global`.
    ProjectId = "project id";
    /// A peer whose sessions were adopted into our tree.
    PeerId = "peer id";
    /// The process that owns a tree.
    OwnerId = "owner id";
}

impl ProjectId {
    /// The project of a directory that is in no repository.
    #[must_use]
    pub fn global() -> Self {
        Self(Arc::from("global"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_an_id_is_any_non_empty_string_and_is_compared_by_bytes() {
        for odd in ["../../etc/x", " ", "ses_1", "SES_1", "é", "e\u{301}", "\0", "a\nb"] {
            let id = SessionId::new(odd).unwrap();
            assert_eq!(id.as_str(), odd);
            let json = serde_json::to_string(&id).unwrap();
            assert_eq!(serde_json::from_str::<SessionId>(&json).unwrap(), id);
        }
        assert_eq!(SessionId::new(""), Err(BadId::Empty { kind: "session id" }));
        assert!(serde_json::from_str::<SessionId>("\"\"").is_err());
        assert_ne!(SessionId::new("é").unwrap(), SessionId::new("e\u{301}").unwrap());
    }

    #[test]
    fn t1_a_stored_id_has_at_most_512_bytes_and_no_nul() {
        assert!(SessionId::new("x".repeat(512)).unwrap().check_storable().is_ok());
        let long = SessionId::new("x".repeat(513)).unwrap();
        assert!(matches!(long.check_storable(), Err(BadId::TooLong { bytes: 513, .. })));
        assert!(matches!(SessionId::new("a\0b").unwrap().check_storable(), Err(BadId::Nul { .. })));
    }
}
