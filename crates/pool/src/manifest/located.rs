//! A value of a manifest together with its place.

use std::{fmt, marker::PhantomData};

use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, SeqAccess, Visitor,
    value::U32Deserializer,
};

use super::problem::Place;

/// By this name the reader of a manifest recognises that a place is asked for.
pub(super) const LOCATED: &str = "$offspring::located";

/// By this name it recognises a value that is either a text or a mapping: numbers come as they were written.
pub(super) const TEXT_OR_TABLE: &str = "$offspring::text_or_mapping";

/// A value of a manifest with its place, for checks that come after reading.
///
/// Only the reader of a manifest knows places: use it in what [`NodeSettings::parse`](super::NodeSettings::parse)
/// reads. Another format refuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it starts.
    pub place: Place,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LocatedVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for LocatedVisitor<T> {
            type Value = Located<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of a manifest")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Located<T>, A::Error> {
                let missing = || de::Error::custom("only a manifest knows places");
                let line = parts.next_element()?.ok_or_else(missing)?;
                let column = parts.next_element()?.ok_or_else(missing)?;
                let value = parts.next_element()?.ok_or_else(missing)?;
                Ok(Located { value, place: Place { line, column } })
            }
        }
        deserializer.deserialize_newtype_struct(LOCATED, LocatedVisitor(PhantomData))
    }
}

#[cfg(feature = "schema")]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Located<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}

/// Line, column, value: what [`Located`] reads.
pub(super) struct LocatedAccess<D> {
    place: Place,
    value: Option<D>,
    next: u8,
}

impl<D> LocatedAccess<D> {
    pub(super) fn new(place: Place, value: D) -> Self {
        Self { place, value: Some(value), next: 0 }
    }
}

impl<'de, D: Deserializer<'de>> SeqAccess<'de> for LocatedAccess<D> {
    type Error = D::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, D::Error> {
        self.next += 1;
        let number = |n: u32| -> U32Deserializer<D::Error> { n.into_deserializer() };
        match self.next {
            1 => seed.deserialize(number(self.place.line)).map(Some),
            2 => seed.deserialize(number(self.place.column)).map(Some),
            _ => self.value.take().map(|value| seed.deserialize(value)).transpose(),
        }
    }
}
