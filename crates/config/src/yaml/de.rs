//! Converts the tree to serde types, and collects every type error of the file.
//!
//! serde stops at the first error. [`decode`] therefore records it, marks the wrong node as
//! *poisoned* and deserializes again as if that node were absent, until nothing is wrong or
//! [`MAX_ERRORS`] are. Types for `decode` have no mandatory fields (absence is evaluated later by
//! `check`, which can suppress errors that only follow from a poisoned node).

use std::collections::HashSet;

use serde::de::{
    self, Deserialize, DeserializeSeed, Error as _, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::DecodeError;
use super::scalar::{Scalar, resolve};
use super::tree::{Id, Kind, Tree};

/// The maximum number of type errors, after which reading stops.
pub(crate) const MAX_ERRORS: usize = 64;

/// The result of [`decode`].
pub(crate) struct Decoded<T> {
    /// The value; `None` if the document as a whole is wrong or there are too many errors.
    pub(crate) value: Option<T>,
    pub(crate) errors: Vec<DecodeError>,
    /// The nodes that are left out of `value`.
    pub(crate) poisoned: HashSet<Id>,
}

/// Deserializes a whole tree.
pub(crate) fn decode<'t, T: Deserialize<'t>>(tree: &'t Tree) -> Decoded<T> {
    let (mut errors, mut poisoned) = (Vec::new(), HashSet::new());
    let value = loop {
        let de = De {
            tree,
            id: tree.root,
            poisoned: &poisoned,
        };
        let error = match T::deserialize(de) {
            Ok(value) => break Some(value),
            Err(error) => error.at(tree.root),
        };
        let node = error.node().unwrap_or(tree.root);
        errors.push(error);
        // The second condition cannot hold (a poisoned node is not visited), but guards the loop.
        if node == tree.root || !poisoned.insert(node) || errors.len() >= MAX_ERRORS {
            break None;
        }
    };
    Decoded {
        value,
        errors,
        poisoned,
    }
}

#[derive(Clone, Copy)]
struct De<'t, 'p> {
    tree: &'t Tree,
    id: Id,
    poisoned: &'p HashSet<Id>,
}

impl<'t> De<'t, '_> {
    fn child(self, id: Id) -> Self {
        Self { id, ..self }
    }

    #[inline(never)]
    fn scalar(self) -> Option<Scalar<'t>> {
        match self.tree.kind(self.id) {
            Kind::Scalar { text, plain: true } => Some(resolve(text)),
            Kind::Scalar { text, .. } => Some(Scalar::Text(text)),
            _ => None,
        }
    }

    /// Returns an error about a value in place of a mapping.
    #[inline(never)]
    fn no_mapping(self, expected: &dyn Expected) -> DecodeError {
        let found = match self.scalar() {
            None => Unexpected::Seq,
            Some(Scalar::Null) => return DecodeError::empty().at(self.id),
            Some(Scalar::Bool(value)) => Unexpected::Bool(value),
            Some(Scalar::Float(value)) => Unexpected::Float(value),
            Some(Scalar::Signed(value)) => Unexpected::Signed(value),
            Some(Scalar::Text(text)) => Unexpected::Str(text),
            Some(Scalar::Unsigned(value)) => Unexpected::Unsigned(value),
        };
        DecodeError::invalid_type(found, expected).at(self.id)
    }
}

impl<'de> de::Deserializer<'de> for De<'de, '_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let result = match self.tree.kind(self.id) {
            Kind::Mapping(entries) => visitor.visit_map(Entries::new(self, entries)),
            Kind::Sequence(items) => visitor.visit_seq(Items {
                de: self,
                items,
                next: 0,
            }),
            Kind::Scalar { .. } => match self.scalar() {
                None | Some(Scalar::Null) => Err(DecodeError::empty()),
                Some(Scalar::Bool(value)) => visitor.visit_bool(value),
                Some(Scalar::Float(value)) => visitor.visit_f64(value),
                Some(Scalar::Signed(value)) => visitor.visit_i64(value),
                Some(Scalar::Text(text)) => visitor.visit_borrowed_str(text),
                Some(Scalar::Unsigned(value)) => visitor.visit_u64(value),
            },
        };
        result.map_err(|error| error.at(self.id))
    }

    /// Accepts a plain `1.10` or `true` as written where text is expected.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match (self.scalar(), self.tree.text(self.id)) {
            (Some(Scalar::Null) | None, _) | (_, None) => self.deserialize_any(visitor),
            (_, Some(text)) => {
                let result: Result<_, DecodeError> = visitor.visit_borrowed_str(text);
                result.map_err(|e| e.at(self.id))
            }
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    /// An absent value is `None`. A present but empty value is an error (see [`DecodeError::empty`]): `tls:` with
    /// nothing after it must not silently mean "no TLS".
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.scalar() {
            Some(Scalar::Null) => Err(DecodeError::empty().at(self.id)),
            _ => visitor.visit_some(self),
        }
    }

    /// Rejects a list of field values in the order of the fields. serde's derived code for it would be half of the
    /// code.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let Kind::Mapping(entries) = self.tree.kind(self.id) else {
            return Err(self.no_mapping(&visitor));
        };
        let result = visitor.visit_map(Entries::new(self, entries));
        result.map_err(|error| error.at(self.id))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    /// Accepts only variants without content; types with content are structs of optional fields.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let result = match (self.scalar(), self.tree.text(self.id)) {
            (Some(Scalar::Null), _) => Err(DecodeError::empty()),
            (_, Some(text)) => visitor.visit_enum(text.into_deserializer()),
            _ => Err(no_choice(variants)),
        };
        result.map_err(|error: DecodeError| error.at(self.id))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
        seq tuple tuple_struct map
    }
}

#[inline(never)]
fn no_choice(variants: &[&str]) -> DecodeError {
    DecodeError::custom(format!("expected {}", crate::suggest::one_of(variants)))
}

struct Items<'t, 'p> {
    de: De<'t, 'p>,
    items: &'t [Id],
    next: usize,
}

// Code that does not depend on the deserialized type is compiled once: there are some hundred
// types.
impl<'t, 'p> Items<'t, 'p> {
    #[inline(never)]
    fn next(&mut self) -> Option<De<'t, 'p>> {
        while let Some(&id) = self.items.get(self.next) {
            self.next += 1;
            if !self.de.poisoned.contains(&id) {
                return Some(self.de.child(id));
            }
        }
        None
    }

    /// Adds the path of the most recently read item.
    #[inline(never)]
    fn wrong(&self, error: DecodeError) -> DecodeError {
        let index = self.next.saturating_sub(1);
        match self.items.get(index) {
            Some(&id) => error.at(id).in_item(index),
            None => error,
        }
    }
}

impl<'t> SeqAccess<'t> for Items<'t, '_> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeError> {
        let Some(item) = self.next() else {
            return Ok(None);
        };
        let value = seed.deserialize(item);
        value.map(Some).map_err(|error| self.wrong(error))
    }
}

struct Entries<'t, 'p> {
    de: De<'t, 'p>,
    entries: &'t [(Id, Id)],
    next: usize,
}

impl<'t, 'p> Entries<'t, 'p> {
    fn new(de: De<'t, 'p>, entries: &'t [(Id, Id)]) -> Self {
        let next = 0;
        Self { de, entries, next }
    }

    /// Returns the next key that is not skipped.
    #[inline(never)]
    fn next_key(&mut self) -> Option<De<'t, 'p>> {
        while let Some((key, value)) = self.entries.get(self.next) {
            let poisoned = self.de.poisoned;
            if !poisoned.contains(key) && !poisoned.contains(value) {
                return Some(self.de.child(*key));
            }
            self.next += 1;
        }
        None
    }

    /// Returns the value of the key that was read.
    #[inline(never)]
    fn next_value(&mut self) -> Result<De<'t, 'p>, DecodeError> {
        let Some(&(_, value)) = self.entries.get(self.next) else {
            return Err(DecodeError::custom("the value has no key"));
        };
        self.next += 1;
        Ok(self.de.child(value))
    }

    #[inline(never)]
    fn wrong_key(&self, error: DecodeError) -> DecodeError {
        match self.entries.get(self.next) {
            Some(&(key, _)) => error.at(key).in_key(self.name(key)),
            None => error,
        }
    }

    /// Adds the path of the most recently read value.
    #[inline(never)]
    fn wrong_value(&self, error: DecodeError) -> DecodeError {
        match self.entries.get(self.next.saturating_sub(1)) {
            Some(&(key, value)) => error.at(value).in_key(self.name(key)),
            None => error,
        }
    }

    fn name(&self, key: Id) -> &'t str {
        self.de.tree.text(key).unwrap_or_default()
    }
}

impl<'t> MapAccess<'t> for Entries<'t, '_> {
    type Error = DecodeError;

    fn next_key_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeError> {
        let Some(key) = self.next_key() else {
            return Ok(None);
        };
        let name = seed.deserialize(key);
        name.map(Some).map_err(|error| self.wrong_key(error))
    }

    fn next_value_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, DecodeError> {
        let value = seed.deserialize(self.next_value()?);
        value.map_err(|error| self.wrong_value(error))
    }
}
