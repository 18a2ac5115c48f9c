//! JSON objects whose fields have any names, none of which occurs twice.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads an object with any fields. serde's own maps keep the last of two fields of the same name;
/// here this is an error.
pub(crate) fn unique_fields<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    struct Fields<V>(PhantomData<V>);
    impl<'de, V: Deserialize<'de>> Visitor<'de> for Fields<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = BTreeMap::new();
            while let Some(name) = map.next_key::<String>()? {
                if fields.contains_key(&name) {
                    return Err(A::Error::custom(format!("duplicate field `{name}`")));
                }
                fields.insert(name, map.next_value()?);
            }
            Ok(fields)
        }
    }
    deserializer.deserialize_map(Fields(PhantomData))
}
