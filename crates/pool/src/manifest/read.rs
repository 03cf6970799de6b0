//! From the tree of a document to Rust values: a serde deserializer whose errors know their place, and a reader that
//! goes on after an error, so that one look at a manifest finds everything that is wrong with it.

use std::{cell::RefCell, collections::HashSet};

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor, value::StrDeserializer,
};

use super::{
    fault::{Fault, Step, WHOLE_NUMBER, What},
    located::{self, LocatedAccess},
    problem::{Problem, is_close, shown, suggestion},
    yaml::{Key, Value, Yaml},
};

/// After so many problems of one part of a manifest the rest of that part is not looked at.
const MAX_PROBLEMS: usize = 32;

/// Reads `yaml` as a `T`. Whatever is wrong is added to `problems`; then the value at fault is left out and the rest
/// is read again. `None` when too little is left to make a `T`.
///
/// `elsewhere` are keys of the outermost mapping that somebody else reads: known, so they may be suggested.
pub(super) fn read<T: DeserializeOwned>(
    yaml: &Yaml,
    path: &str,
    elsewhere: &[&str],
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let run = Run { left_out: RefCell::default(), unknown: RefCell::default(), root: yaml.id, elsewhere };
    let mut found = Vec::new();
    let value = loop {
        match T::deserialize(Node { yaml, run: &run }) {
            Ok(value) => break Some(value),
            Err(fault) => {
                let blamed = fault.blamed;
                if !fault.silent {
                    found.push(fault.into_problem(path, yaml.place));
                }
                let more = blamed.is_some_and(|id| run.left_out.borrow_mut().insert(id));
                if !more || found.len() >= MAX_PROBLEMS {
                    break None;
                }
            }
        }
    };
    problems.append(&mut found);
    problems.extend(run.unknown.into_inner().into_iter().map(|(_, problem)| problem));
    value
}

/// What one call of [`read`] knows.
struct Run<'y> {
    /// Values that are not looked at again, by their ids.
    left_out: RefCell<HashSet<u32>>,
    /// Keys that nobody knows, by the ids of their values.
    unknown: RefCell<Vec<(u32, Problem)>>,
    root: u32,
    elsewhere: &'y [&'y str],
}

impl Run<'_> {
    fn is_left_out(&self, yaml: &Yaml) -> bool {
        self.left_out.borrow().contains(&yaml.id)
    }

    fn note_unknown(&self, id: u32, problem: Problem) {
        let mut unknown = self.unknown.borrow_mut();
        if unknown.iter().all(|(known, _)| *known != id) {
            unknown.push((id, problem));
        }
    }
}

/// One value as serde sees it.
#[derive(Clone, Copy)]
struct Node<'a> {
    yaml: &'a Yaml,
    run: &'a Run<'a>,
}

impl<'a> Node<'a> {
    fn placed<T>(self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|fault| fault.at(self.yaml.place))
    }

    fn refuse<T>(self, expected: &str) -> Result<T, Fault> {
        Err(Fault::expected(expected, self.yaml).at(self.yaml.place))
    }

    fn refuse_with<T>(self, expected: &str, hint: Option<String>) -> Result<T, Fault> {
        Err(Fault::expected(expected, self.yaml).suggest(hint).at(self.yaml.place))
    }

    /// A scalar as text, numbers and truth values as they were written.
    fn text(self) -> Option<&'a str> {
        match &self.yaml.value {
            Value::Text(text) => Some(text),
            Value::Int { written, .. } | Value::Float { written, .. } => Some(written),
            Value::Bool(true) => Some("true"),
            Value::Bool(false) => Some("false"),
            Value::Null | Value::List(_) | Value::Table(_) => None,
        }
    }

    fn list<'de, V: Visitor<'de>>(self, items: &'a [Yaml], visitor: V) -> Result<V::Value, Fault> {
        self.placed(visitor.visit_seq(Items { rest: items.iter().enumerate(), run: self.run }))
    }

    fn table<'de, V: Visitor<'de>>(self, fields: Option<&[&str]>, visitor: V) -> Result<V::Value, Fault> {
        let entries = self.yaml.entries();
        if let Some(fields) = fields {
            let elsewhere = if self.yaml.id == self.run.root { self.run.elsewhere } else { &[] };
            for (key, value) in entries.iter().filter(|(key, _)| !fields.contains(&key.text.as_str())) {
                let known = fields.iter().chain(elsewhere).copied();
                let problem = Problem::at(key.place, format!("unknown key `{}`", shown(&key.text)))
                    .maybe_suggest(suggestion(&key.text, "known keys", known));
                self.run.note_unknown(value.id, problem);
            }
        }
        let access = Entries { rest: entries.iter(), value: None, fields, run: self.run };
        visitor.visit_map(access).map_err(|mut fault| {
            if let (What::Missing(field), None) = (&fault.what, fault.place) {
                // Present, but already reported: as wrong, or as a misspelling of this key.
                let unknown = |key: &Key| fields.is_some_and(|fields| !fields.contains(&key.text.as_str()));
                fault.silent = entries.iter().any(|(key, value)| {
                    let reported = self.run.is_left_out(value);
                    (reported || unknown(key)) && (key.text == *field || is_close(&key.text, field))
                });
            }
            fault.at(self.yaml.place)
        })
    }

    fn whole_number(self, least: i128, most: i128) -> Result<i128, Fault> {
        let hint = match &self.yaml.value {
            Value::Int { number, .. } if (least..=most).contains(number) => return Ok(*number),
            Value::Text(text) if text.trim().parse::<i64>().is_ok() => {
                Some("take the quotes away".to_owned())
            }
            _ => None,
        };
        let expected = match (&self.yaml.value, least) {
            // A bound that nobody gets near says nothing.
            (Value::Int { .. } | Value::Float { .. }, _) if most > i128::from(u32::MAX) => {
                format!("{WHOLE_NUMBER} from {least}")
            }
            (Value::Int { .. } | Value::Float { .. }, _) => format!("{WHOLE_NUMBER} from {least} to {most}"),
            _ => WHOLE_NUMBER.to_owned(),
        };
        self.refuse_with(&expected, hint)
    }
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident $kind:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let number = self.whole_number(i128::from(<$kind>::MIN), i128::from(<$kind>::MAX))?;
            match <$kind>::try_from(number) {
                Ok(number) => self.placed(visitor.$visit(number)),
                Err(_) => self.refuse(WHOLE_NUMBER),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Node<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let result = match &self.yaml.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int { number, .. } => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                _ => visitor.visit_i128(*number),
            },
            Value::Float { number, .. } => visitor.visit_f64(*number),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => return self.list(items, visitor),
            Value::Table(_) => return self.table(None, visitor),
        };
        self.placed(result)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.yaml.value {
            Value::Bool(value) => self.placed(visitor.visit_bool(*value)),
            Value::Text(text) => {
                let meant = match text.to_ascii_lowercase().as_str() {
                    "yes" | "on" | "true" | "y" => Some("write `true`".to_owned()),
                    "no" | "off" | "false" | "n" => Some("write `false`".to_owned()),
                    _ => None,
                };
                self.refuse_with("`true` or `false`", meant)
            }
            _ => self.refuse("`true` or `false`"),
        }
    }

    whole_numbers! {
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.yaml.value {
            // Every number that fits a limit is exact; the rest is rounded as every float is.
            Value::Int { written, .. } if written.parse::<f64>().is_ok() => {
                self.placed(visitor.visit_f64(written.parse().unwrap_or_default()))
            }
            Value::Float { number, .. } if number.is_finite() => self.placed(visitor.visit_f64(*number)),
            _ => self.refuse("a number"),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.text() {
            Some(text) => self.placed(visitor.visit_str(text)),
            None => {
                let empty = matches!(self.yaml.value, Value::Null);
                self.refuse_with("text", empty.then(|| "for an empty text write \"\"".to_owned()))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.yaml.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.yaml.value {
            Value::Null => self.placed(visitor.visit_unit()),
            _ => self.refuse("nothing"),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match name {
            located::LOCATED => visitor.visit_seq(LocatedAccess::new(self.yaml.place, self)),
            located::TEXT_OR_TABLE => match (self.text(), &self.yaml.value) {
                (Some(text), _) => self.placed(visitor.visit_str(text)),
                (None, Value::Table(_)) => self.table(None, visitor),
                _ => self.deserialize_any(visitor),
            },
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.yaml.value {
            Value::List(items) => self.list(items, visitor),
            // `workers:` with everything below it commented out.
            Value::Null => self.list(&[], visitor),
            Value::Text(_) => self.refuse_with("a list", Some("put it in square brackets".to_owned())),
            _ => self.refuse("a list"),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.yaml.value {
            Value::Table(_) | Value::Null => self.table(None, visitor),
            _ => self.refuse("a mapping"),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.yaml.value {
            Value::Table(_) | Value::Null => self.table(Some(fields), visitor),
            _ => self.refuse("a mapping"),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let (key, content) = match &self.yaml.value {
            Value::Table(entries) => match entries.as_slice() {
                [(key, content)] => (key.text.as_str(), Some(Node { yaml: content, ..self })),
                _ => return self.refuse("one of its values"),
            },
            _ => match self.text() {
                Some(text) => (text, None),
                None => {
                    let values =
                        variants.iter().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(" or ");
                    return self.refuse(&values);
                }
            },
        };
        self.placed(visitor.visit_enum(Variant { key, content }))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }
}

struct Items<'a> {
    rest: std::iter::Enumerate<std::slice::Iter<'a, Yaml>>,
    run: &'a Run<'a>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let run = self.run;
        let Some((index, yaml)) = self.rest.find(|(_, yaml)| !run.is_left_out(yaml)) else { return Ok(None) };
        let read = seed.deserialize(Node { yaml, run });
        read.map(Some).map_err(|fault| fault.at(yaml.place).inside(Step::Item(index), yaml.id))
    }
}

struct Entries<'a, 'f> {
    rest: std::slice::Iter<'a, (Key, Yaml)>,
    value: Option<&'a (Key, Yaml)>,
    /// The keys of the struct, when it is one: all others were reported already.
    fields: Option<&'f [&'f str]>,
    run: &'a Run<'a>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let (run, fields) = (self.run, self.fields);
        let wanted = |(key, value): &&(Key, Yaml)| {
            !run.is_left_out(value) && fields.is_none_or(|fields| fields.contains(&key.text.as_str()))
        };
        let Some(entry) = self.rest.find(wanted) else { return Ok(None) };
        self.value = Some(entry);
        let (key, value) = entry;
        let read = seed.deserialize(KeyNode { key });
        read.map(Some).map_err(|mut fault| {
            fault.blamed.get_or_insert(value.id);
            fault.at(key.place)
        })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let Some((key, yaml)) = self.value.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        let read = seed.deserialize(Node { yaml, run: self.run });
        read.map_err(|fault| fault.at(yaml.place).inside(Step::Key(key.text.clone()), yaml.id))
    }
}

/// A key as serde sees it: text, or text with its place.
struct KeyNode<'a> {
    key: &'a Key,
}

impl<'de> Deserializer<'de> for KeyNode<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str(&self.key.text)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match name {
            located::LOCATED => visitor.visit_seq(LocatedAccess::new(self.key.place, self)),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_enum(Variant { key: &self.key.text, content: None })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// `word`, or `word: content`.
struct Variant<'a> {
    key: &'a str,
    content: Option<Node<'a>>,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Fault;
    type Variant = Content<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Content<'a>), Fault> {
        let name: StrDeserializer<'_, Fault> = self.key.into_deserializer();
        Ok((seed.deserialize(name)?, Content(self.content)))
    }
}

struct Content<'a>(Option<Node<'a>>);

impl<'a> Content<'a> {
    fn required(self) -> Result<Node<'a>, Fault> {
        self.0.ok_or_else(|| de::Error::custom("this value wants something after a colon"))
    }
}

impl<'de> VariantAccess<'de> for Content<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.0 {
            None => Ok(()),
            Some(node) => node.deserialize_unit(de::IgnoredAny).map(|_| ()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self.required()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Fault> {
        self.required()?.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.required()?.deserialize_struct("", fields, visitor)
    }
}
