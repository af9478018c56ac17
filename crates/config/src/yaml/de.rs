//! Tree → serde types, with every type error of the file at once.
//!
//! serde stops at the first error. [`decode`] therefore records it, marks the node that is wrong as
//! *poisoned* and deserializes again as if that node were absent, until nothing is wrong or
//! [`MAX_ERRORS`] are. Types for `decode` have no mandatory fields (absence is judged later by
//! `check`, which can suppress what only follows from a poisoned node).

use std::collections::HashSet;

use serde::de::{
    self, Deserialize, DeserializeSeed, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::DecodeError;
use super::scalar::{Scalar, resolve};
use super::tree::{Id, Kind, Tree};

/// Type errors after which reading stops.
pub(crate) const MAX_ERRORS: usize = 64;

/// What [`decode`] found.
pub(crate) struct Decoded<T> {
    /// `None` when the document as a whole is wrong or there were too many errors.
    pub(crate) value: Option<T>,
    pub(crate) errors: Vec<DecodeError>,
    /// Nodes left out of `value`.
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
        let node = error.node.unwrap_or(tree.root);
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

    fn scalar(self) -> Option<Scalar<'t>> {
        match self.tree.kind(self.id) {
            Kind::Scalar { text, plain: true } => Some(resolve(text)),
            Kind::Scalar { text, .. } => Some(Scalar::Text(text)),
            _ => None,
        }
    }
}

impl<'de> de::Deserializer<'de> for De<'de, '_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let result = match self.tree.kind(self.id) {
            Kind::Mapping(entries) => visitor.visit_map(Entries {
                de: self,
                entries,
                next: 0,
            }),
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

    /// Where text is wanted, a plain `1.10` or `true` is the text as written.
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

    /// Absent is `None`; present but empty is an error (see [`DecodeError::empty`]): `tls:` with
    /// nothing behind it must not silently mean "no TLS".
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.scalar() {
            Some(Scalar::Null) => Err(DecodeError::empty().at(self.id)),
            _ => visitor.visit_some(self),
        }
    }

    /// A list is not taken for the fields in their order.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if let Kind::Sequence(_) = self.tree.kind(self.id) {
            let error = DecodeError::invalid_type(Unexpected::Seq, &visitor);
            return Err(error.at(self.id));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    /// Only variants without content: what has content is a struct of optional fields.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let result = match (self.scalar(), self.tree.text(self.id)) {
            (Some(Scalar::Null), _) => Err(DecodeError::empty()),
            (_, Some(text)) => visitor.visit_enum(text.into_deserializer()),
            _ => Err(DecodeError::custom(format!(
                "expected {}",
                crate::suggest::one_of(variants)
            ))),
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

struct Items<'t, 'p> {
    de: De<'t, 'p>,
    items: &'t [Id],
    next: usize,
}

impl<'t> SeqAccess<'t> for Items<'t, '_> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeError> {
        while let Some(&id) = self.items.get(self.next) {
            self.next += 1;
            if !self.de.poisoned.contains(&id) {
                let value = seed.deserialize(self.de.child(id));
                let index = self.next - 1;
                return value.map(Some).map_err(|e| e.at(id).in_item(index));
            }
        }
        Ok(None)
    }
}

struct Entries<'t, 'p> {
    de: De<'t, 'p>,
    entries: &'t [(Id, Id)],
    next: usize,
}

impl<'t> MapAccess<'t> for Entries<'t, '_> {
    type Error = DecodeError;

    fn next_key_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeError> {
        while let Some(&(key, value)) = self.entries.get(self.next) {
            let (tree, poisoned) = (self.de.tree, self.de.poisoned);
            if poisoned.contains(&key) || poisoned.contains(&value) {
                self.next += 1;
                continue;
            }
            let name = seed.deserialize(self.de.child(key));
            return name
                .map(Some)
                .map_err(|e| e.at(key).in_key(tree.text(key).unwrap_or_default()));
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'t>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, DecodeError> {
        let Some(&(key, value)) = self.entries.get(self.next) else {
            return Err(DecodeError::custom("a value without key"));
        };
        self.next += 1;
        let name = self.de.tree.text(key).unwrap_or_default();
        seed.deserialize(self.de.child(value))
            .map_err(|e| e.at(value).in_key(name))
    }
}
