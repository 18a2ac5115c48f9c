//! Values of events whose JSON has several forms: places where they ran, and shapes.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

/// Number or name of a process or a thread.
#[derive(PartialEq, Eq, Hash, Clone)]
pub(super) enum Place {
    Negative(i64),
    Unsigned(u64),
    Name(String),
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PlaceVisitor;
        impl Visitor<'_> for PlaceVisitor {
            type Value = Place;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number or the name of a process or a thread")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Place, E> {
                Ok(Place::Negative(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Place, E> {
                Ok(Place::Unsigned(number))
            }

            fn visit_str<E>(self, name: &str) -> Result<Place, E> {
                Ok(Place::Name(name.to_owned()))
            }
        }
        deserializer.deserialize_any(PlaceVisitor)
    }
}

/// Shapes of an operator's first inputs. Inputs that are no tensors have the shape `[]`.
pub(super) struct Shapes(pub(super) Vec<Vec<u64>>);

/// Maximum number of inputs, and of dimensions of an input, that are kept.
const MAX_KEPT: usize = 8;

impl<'de> Deserialize<'de> for Shapes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShapesVisitor;
        impl<'de> Visitor<'de> for ShapesVisitor {
            type Value = Shapes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of the shapes of an operator's inputs")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut inputs: A) -> Result<Shapes, A::Error> {
                let mut shapes = Vec::new();
                while let Some(Shape(shape)) = inputs.next_element()? {
                    if shapes.len() < MAX_KEPT {
                        shapes.push(shape);
                    }
                }
                Ok(Shapes(shapes))
            }
        }
        deserializer.deserialize_seq(ShapesVisitor)
    }
}

/// Shape of one input. The one of a list of tensors is `[]`.
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShapeVisitor;
        impl<'de> Visitor<'de> for ShapeVisitor {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the shape of an operator's input")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut dims: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                let mut is_kept = true;
                while let Some(Dimension(dim)) = dims.next_element()? {
                    is_kept &= dim.is_some() && shape.len() < MAX_KEPT;
                    shape.extend(dim.filter(|_| is_kept));
                }
                Ok(Shape(if is_kept { shape } else { Vec::new() }))
            }
        }
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

/// A dimension of a shape; `None` for a shape in a list of shapes.
struct Dimension(Option<u64>);

impl<'de> Deserialize<'de> for Dimension {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DimensionVisitor;
        impl<'de> Visitor<'de> for DimensionVisitor {
            type Value = Dimension;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size or a shape")
            }

            fn visit_u64<E>(self, dim: u64) -> Result<Dimension, E> {
                Ok(Dimension(Some(dim)))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Dimension, E> {
                Ok(Dimension(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut dims: A) -> Result<Dimension, A::Error> {
                while dims.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Dimension(None))
            }
        }
        deserializer.deserialize_any(DimensionVisitor)
    }
}
