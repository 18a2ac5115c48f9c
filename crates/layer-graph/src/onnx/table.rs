//! Evaluation of constants whose values are known, such as the mask of an attention or the sines of
//! a rotary embedding. The operators are those of ONNX. Functions return `None` if the operator,
//! its attributes or the sizes of its inputs are not among those that are evaluated.

#![expect(clippy::float_cmp, reason = "integers and booleans are exact")]

use std::rc::Rc;

use super::dims::permute;
use super::node::Node;
use super::numbers::axis;

/// Maximum number of elements of a tensor that is evaluated.
pub(super) const MAX_ELEMENTS: usize = 1 << 22;

/// Tensor of known values: numbers, integers, or booleans as 0 and 1.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// Dimensions, outermost first. Empty for a scalar.
    pub(super) dims: Vec<usize>,
    /// Elements in row-major order.
    pub(super) values: Rc<[f64]>,
    /// Whether the elements are integers, whose quotients are rounded towards zero.
    pub(super) is_integer: bool,
}

impl Table {
    /// Creates a table; `None` if it is too large or the number of elements does not fit.
    pub(super) fn new(dims: Vec<usize>, values: Vec<f64>, is_integer: bool) -> Option<Self> {
        (count(&dims)? == values.len()).then(|| Self { dims, values: values.into(), is_integer })
    }

    /// Broadcasts the table to the given dimensions.
    pub(super) fn expand(&self, dims: &[usize]) -> Option<Self> {
        let places = places(&self.dims, dims)?;
        let values = places.into_iter().map(|place| self.values[place]).collect();
        Self::new(dims.to_vec(), values, self.is_integer)
    }

    /// Returns the elements at the given positions of an axis, which is replaced by `shape`.
    fn gather(&self, along: usize, positions: &[usize], shape: &[usize]) -> Option<Self> {
        let (outer, rest) = self.dims.split_at_checked(along)?;
        let (&size, inner) = rest.split_first()?;
        let (rows, width) = (count(outer)?, count(inner)?);
        let dims = [outer, shape, inner].concat();
        let mut values = Vec::with_capacity(count(&dims)?);
        for row in 0..rows {
            for &position in positions {
                let start = (row * size + position) * width;
                values.extend_from_slice(self.values.get(start..start + width)?);
            }
        }
        Self::new(dims, values, self.is_integer)
    }

    fn map(&self, is_integer: bool, function: impl Fn(f64) -> f64) -> Self {
        let values = self.values.iter().map(|&value| function(value)).collect();
        Self { dims: self.dims.clone(), values, is_integer }
    }

    fn zip(&self, other: &Self, is_integer: bool, function: impl Fn(f64, f64) -> f64) -> Option<Self> {
        let dims = broadcast(&self.dims, &other.dims)?;
        let (left, right) = (self.expand(&dims)?, other.expand(&dims)?);
        let pairs = left.values.iter().zip(&*right.values);
        Self::new(dims, pairs.map(|(&a, &b)| function(a, b)).collect(), is_integer)
    }
}

/// Returns the number of elements, if it is at most [`MAX_ELEMENTS`].
fn count(dims: &[usize]) -> Option<usize> {
    let count = dims.iter().try_fold(1usize, |all, &dim| all.checked_mul(dim))?;
    (count <= MAX_ELEMENTS).then_some(count)
}

/// Returns the dimensions to which two tensors are broadcast together.
pub(super) fn broadcast(left: &[usize], right: &[usize]) -> Option<Vec<usize>> {
    let rank = left.len().max(right.len());
    let at = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank)
        .map(|i| match (at(left, i), at(right, i)) {
            (a, b) if a == b || b == 1 => Some(a),
            (1, b) => Some(b),
            _ => None,
        })
        .collect()
}

/// Returns for each element of a tensor of dimensions `to` the element of a tensor of dimensions
/// `from` that it is broadcast from.
fn places(from: &[usize], to: &[usize]) -> Option<Vec<usize>> {
    let missing = to.len().checked_sub(from.len())?;
    let mut places = vec![0];
    count(to)?;
    for (i, &size) in to.iter().enumerate() {
        let own = if i < missing { 1 } else { from[i - missing] };
        if own != size && own != 1 {
            return None;
        }
        let step = |place: usize, at: usize| place * own + if own == 1 { 0 } else { at };
        places = places.iter().flat_map(|&place| (0..size).map(move |at| step(place, at))).collect();
    }
    Some(places)
}

/// Evaluates a node whose inputs are known tables.
pub(super) fn evaluate(node: Node<'_>, inputs: &[Table]) -> Option<Table> {
    let first = inputs.first()?;
    let second = inputs.get(1);
    let truth = |holds: bool| f64::from(u8::from(holds));
    let compare = |holds: fn(f64, f64) -> bool| first.zip(second?, true, |a, b| truth(holds(a, b)));
    let combine = |function: fn(f64, f64) -> f64| {
        inputs[1..].iter().try_fold(first.clone(), |all, next| all.zip(next, first.is_integer, function))
    };
    match node.operator().as_str() {
        "Identity" => Some(first.clone()),
        "Neg" => Some(first.map(first.is_integer, |x| -x)),
        "Abs" => Some(first.map(first.is_integer, f64::abs)),
        "Sqrt" => Some(first.map(false, f64::sqrt)),
        "Reciprocal" => Some(first.map(false, f64::recip)),
        "Exp" => Some(first.map(false, f64::exp)),
        "Log" => Some(first.map(false, f64::ln)),
        "Cos" => Some(first.map(false, f64::cos)),
        "Sin" => Some(first.map(false, f64::sin)),
        "Floor" => Some(first.map(false, f64::floor)),
        "Not" => Some(first.map(true, |x| truth(x == 0.0))),
        "Add" | "Sum" => combine(|a, b| a + b),
        "Sub" => combine(|a, b| a - b),
        "Mul" => combine(|a, b| a * b),
        "Div" if first.is_integer => {
            (!second?.values.contains(&0.0)).then(|| combine(|a, b| (a / b).trunc()))?
        }
        "Div" => combine(|a, b| a / b),
        "Mod" => (!second?.values.contains(&0.0)).then(|| combine(|a, b| a - b * (a / b).floor()))?,
        "Pow" => combine(f64::powf),
        "Max" => combine(f64::max),
        "Min" => combine(f64::min),
        "Equal" => compare(|a, b| a == b),
        "Less" => compare(|a, b| a < b),
        "LessOrEqual" => compare(|a, b| a <= b),
        "Greater" => compare(|a, b| a > b),
        "GreaterOrEqual" => compare(|a, b| a >= b),
        "And" => compare(|a, b| a != 0.0 && b != 0.0),
        "Or" => compare(|a, b| a != 0.0 || b != 0.0),
        "Where" => {
            let (second, third) = (second?, inputs.get(2)?);
            let dims = broadcast(&broadcast(&first.dims, &second.dims)?, &third.dims)?;
            let (choice, then, or) = (first.expand(&dims)?, second.expand(&dims)?, third.expand(&dims)?);
            let values = (0..choice.values.len())
                .map(|i| if choice.values[i] == 0.0 { or.values[i] } else { then.values[i] });
            Table::new(dims, values.collect(), second.is_integer)
        }
        "Cast" => {
            let is_float = matches!(node.int("to", 0).ok()?, 1 | 10 | 11 | 16);
            Some(first.map(!is_float, |x| if is_float { x } else { x.trunc() }))
        }
        "CastLike" => Some(first.map(second?.is_integer, |x| {
            if second.is_some_and(|like| like.is_integer) { x.trunc() } else { x }
        })),
        _ => rearranged(node, inputs),
    }
}

/// Evaluates a node that creates or rearranges elements.
fn rearranged(node: Node<'_>, inputs: &[Table]) -> Option<Table> {
    let first = inputs.first()?;
    let second = inputs.get(1);
    let integers = || second?.values.iter().map(|&value| integer(value)).collect::<Option<Vec<i64>>>();
    match node.operator().as_str() {
        "Range" => range(first, second?, inputs.get(2)?),
        "Trilu" => {
            let shift = second.map_or(Some(0), |shift| integer(*shift.values.first()?))?;
            let keeps_upper = node.int("upper", 1).ok()? != 0;
            let &[.., rows, columns] = first.dims.as_slice() else { return None };
            let mut values = first.values.to_vec();
            for (i, value) in values.iter_mut().enumerate() {
                let (row, column) = (i / columns % rows, i % columns);
                let distance = i64::try_from(column).ok()? - i64::try_from(row).ok()?;
                if if keeps_upper { distance < shift } else { distance > shift } {
                    *value = 0.0;
                }
            }
            Table::new(first.dims.clone(), values, first.is_integer)
        }
        "CumSum" => {
            let along = axis(*integers()?.first()?, first.dims.len())?;
            if node.int("exclusive", 0).ok()? != 0 || node.int("reverse", 0).ok()? != 0 {
                return None;
            }
            let width: usize = first.dims[along + 1..].iter().product();
            let mut values = first.values.to_vec();
            for i in 0..values.len() {
                if i / width.max(1) % first.dims[along] > 0 {
                    values[i] += values[i - width];
                }
            }
            Table::new(first.dims.clone(), values, first.is_integer)
        }
        "MatMul" => product(first, second?),
        "Transpose" => {
            let order = node.ints("perm");
            let dims = permute(order, &first.dims)?;
            let axes: Vec<usize> = (0..dims.len()).collect();
            let axes = permute(order, &axes)?;
            let stride = |axis: usize| first.dims[axis + 1..].iter().product::<usize>();
            let mut places = vec![0];
            for (&axis, &size) in axes.iter().zip(&dims) {
                let step = stride(axis);
                places = places.iter().flat_map(|&at| (0..size).map(move |i| at + i * step)).collect();
            }
            Table::new(dims, places.into_iter().map(|at| first.values[at]).collect(), first.is_integer)
        }
        "Concat" => {
            let along = axis(node.int("axis", 0).ok()?, first.dims.len())?;
            let (outer, inner) = (&first.dims[..along], &first.dims[along + 1..]);
            let fits = |table: &Table| {
                table.dims.len() == first.dims.len()
                    && table.dims[..along] == *outer
                    && table.dims[along + 1..] == *inner
            };
            let size =
                inputs.iter().map(|table| fits(table).then(|| table.dims[along])).sum::<Option<_>>()?;
            let dims = [outer, &[size], inner].concat();
            let mut values = Vec::with_capacity(count(&dims)?);
            for row in 0..count(outer)? {
                for table in inputs {
                    let width = table.dims[along] * count(inner)?;
                    values.extend_from_slice(&table.values[row * width..(row + 1) * width]);
                }
            }
            Table::new(dims, values, first.is_integer)
        }
        "Gather" => {
            let along = axis(node.int("axis", 0).ok()?, first.dims.len())?;
            let positions = integers()?.into_iter().map(|at| axis(at, first.dims[along]));
            first.gather(along, &positions.collect::<Option<Vec<_>>>()?, &second?.dims)
        }
        "GatherND" if node.int("batch_dims", 0).ok()? == 0 => gather_elements(first, second?),
        "GatherElements" => {
            let (places, along) = (second?, axis(node.int("axis", 0).ok()?, first.dims.len())?);
            let width = first.dims[along + 1..].iter().product::<usize>().max(1);
            let outer_width = width * places.dims.get(along)?;
            let mut values = Vec::with_capacity(places.values.len());
            for (i, &place) in places.values.iter().enumerate() {
                let place = axis(integer(place)?, first.dims[along])?;
                let at = (i / outer_width.max(1) * first.dims[along] + place) * width + i % width;
                values.push(*first.values.get(at)?);
            }
            // Only along one axis of tensors that are equal in the others.
            let is_equal = first.dims.len() == places.dims.len()
                && (0..first.dims.len()).all(|i| i == along || first.dims[i] == places.dims[i]);
            is_equal.then(|| Table::new(places.dims.clone(), values, first.is_integer))?
        }
        "Slice" => slice(node, inputs),
        _ => None,
    }
}

/// Converts an element to the integer that it holds.
pub(super) fn integer(value: f64) -> Option<i64> {
    // Integers up to 2^53 are exact; larger ones only end slices.
    (value == value.trunc()).then_some(value as i64)
}

fn range(start: &Table, limit: &Table, step: &Table) -> Option<Table> {
    let [start_at, limit, delta] = [start, limit, step].map(|table| table.values.first().copied());
    let (first, limit, delta) = (start_at?, limit?, delta?);
    let length = ((limit - first) / delta).ceil();
    if !(0.0..=MAX_ELEMENTS as f64).contains(&length) {
        return None;
    }
    let length = length as usize;
    let values = (0..length).map(|i| first + i as f64 * delta).collect();
    Table::new(vec![length], values, start.is_integer)
}

/// Returns the product of two matrices, or of matrices of equal or broadcast outer dimensions.
fn product(left: &Table, right: &Table) -> Option<Table> {
    let (&[ref outer @ .., rows, inner], &[ref others @ .., same, columns]) =
        (&left.dims[..], &right.dims[..])
    else {
        return None;
    };
    let outer = broadcast(outer, others)?;
    if inner != same || count(&[&outer[..], &[rows, inner.max(1), columns]].concat()).is_none() {
        return None;
    }
    let left = left.expand(&[&outer[..], &[rows, inner]].concat())?;
    let right = right.expand(&[&outer[..], &[inner, columns]].concat())?;
    let mut values = Vec::new();
    for matrix in 0..count(&outer)? {
        for row in 0..rows {
            for column in 0..columns {
                let term = |i: usize| {
                    left.values[(matrix * rows + row) * inner + i]
                        * right.values[(matrix * inner + i) * columns + column]
                };
                values.push((0..inner).map(term).sum());
            }
        }
    }
    Table::new([&outer[..], &[rows, columns]].concat(), values, false)
}

/// Returns the elements at the positions of which the last dimension of `places` has the leading
/// indices.
fn gather_elements(table: &Table, places: &Table) -> Option<Table> {
    let (&depth, outer) = places.dims.split_last()?;
    let (leading, inner) = table.dims.split_at_checked(depth)?;
    let width = count(inner)?;
    let dims = [outer, inner].concat();
    let mut values = Vec::with_capacity(count(&dims)?);
    for place in places.values.chunks(depth.max(1)) {
        let mut at = 0;
        for (&index, &size) in place.iter().zip(leading) {
            at = at * size + axis(integer(index)?, size)?;
        }
        values.extend_from_slice(table.values.get(at * width..(at + 1) * width)?);
    }
    Table::new(dims, values, table.is_integer)
}

/// Evaluates a `Slice` whose ends are inputs.
fn slice(node: Node<'_>, inputs: &[Table]) -> Option<Table> {
    let mut table = inputs.first()?.clone();
    let list = |position: usize| -> Option<Vec<i64>> {
        inputs.get(position)?.values.iter().map(|&value| integer(value)).collect()
    };
    let (starts, ends) = (list(1)?, list(2)?);
    let axes = match node.optional_input(3) {
        Some(_) => list(3)?,
        None => (0..i64::try_from(starts.len()).ok()?).collect(),
    };
    let steps = if node.optional_input(4).is_some() { list(4)? } else { vec![1; starts.len()] };
    if [axes.len(), ends.len(), steps.len()] != [starts.len(); 3] {
        return None;
    }
    for (i, &along) in axes.iter().enumerate() {
        let along = axis(along, table.dims.len())?;
        let positions = positions(starts[i], ends[i], steps[i], table.dims[along])?;
        table = table.gather(along, &positions, &[positions.len()])?;
    }
    Some(table)
}

/// Returns every `step`-th position from `start` to before `end` among `size`, backwards if the
/// step is negative. Negative ends count from the back, and those outside are clamped.
fn positions(start: i64, end: i64, step: i64, size: usize) -> Option<Vec<usize>> {
    if step > 0 {
        let (start, end) = ends_of_part(start, end, size);
        return Some((start..end).step_by(usize::try_from(step).ok()?).collect());
    }
    // Counted from the back, the positions increase.
    let length = i64::try_from(size).ok()?;
    let from_back = |at: i64| {
        let place = if at < 0 { at.saturating_neg() } else { length.saturating_sub(at) };
        usize::try_from(place.saturating_sub(1).max(0)).unwrap_or(size).min(size)
    };
    let (start, end) = (from_back(start), from_back(end));
    let step = usize::try_from(step.checked_neg()?).ok().filter(|&step| step > 0)?;
    Some((start..end.max(start)).step_by(step).map(|place| size - 1 - place).collect())
}

/// Returns the range of positions from `start` to before `end` among `size`. Negative ends count
/// from the back, and those outside are clamped.
pub(super) fn ends_of_part(start: i64, end: i64, size: usize) -> (usize, usize) {
    let place = |at: i64| {
        let signed = i64::try_from(size).unwrap_or(i64::MAX);
        let from_front = if at < 0 { at.saturating_add(signed) } else { at };
        usize::try_from(from_front).unwrap_or(0).min(size)
    };
    let start = place(start);
    (start, place(end).max(start))
}
