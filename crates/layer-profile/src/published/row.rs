//! Parser of the text format of published profiles. A *row* is one line: the times of a layer, or
//! of a block of layers, at one batch size.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::ProfileError;
use crate::table::MAX_TIME;
use crate::unique_fields::unique_fields;

/// One line of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PublishedRow {
    /// Line number, from 1.
    pub(super) line: usize,
    /// First column of the line as written in the file: kind, parameters, batch size and shape.
    pub(super) text: String,
    /// Kind of the layer as written in the file, such as `conv2d`, or of a block of layers, such as
    /// `ResnetBottleneck`.
    pub(super) kind: String,
    /// Hyper-parameters of the layer by name, as written in the file.
    pub(super) parameters: BTreeMap<String, Value>,
    /// Batch size in samples.
    pub(super) batch: usize,
    /// Dimensions of an input sample, outermost first.
    pub(super) input: Vec<usize>,
    /// Time of the forward pass of the whole batch.
    pub(super) forward: Duration,
    /// Time of the backward pass of the whole batch.
    pub(super) backward: Duration,
}

impl PublishedRow {
    /// Returns the parameter of this name as a pair `[height, width]`; a single size stands for
    /// both. `None` if it is absent or of another type.
    pub(super) fn pair(&self, name: &str) -> Option<[usize; 2]> {
        match self.parameters.get(name)? {
            Value::Array(pair) => {
                let [height, width] = pair.as_slice() else { return None };
                Some([size(height)?, size(width)?])
            }
            one => size(one).map(|size| [size; 2]),
        }
    }

    /// Returns the parameter of this name as a size. `None` if it is absent or of another type.
    pub(super) fn size(&self, name: &str) -> Option<usize> {
        size(self.parameters.get(name)?)
    }

    /// Returns a [`ProfileError::Published`] that names the line of this row.
    pub(super) fn error(&self, problem: impl Into<String>) -> ProfileError {
        ProfileError::Published { line: self.line, problem: problem.into() }
    }
}

/// Hyper-parameters of a layer, none of which occurs twice.
#[derive(Deserialize)]
struct Parameters(#[serde(deserialize_with = "unique_fields")] BTreeMap<String, Value>);

fn size(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|size| usize::try_from(size).ok())
}

/// Parses a file into the rows of each batch size, in the order of the file. Batch sizes are
/// ascending; each has at least one row.
///
/// # Errors
/// [`ProfileError::Published`], which names the line, if a line is malformed, a batch size occurs
/// in two places, or there are no rows.
pub(super) fn parse(text: &str) -> Result<Vec<Vec<PublishedRow>>, ProfileError> {
    let mut blocks: Vec<Vec<PublishedRow>> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let error = |problem: String| ProfileError::Published { line: i + 1, problem };
        let mut columns = line.split_whitespace();
        let Some(key) = columns.next() else { continue };
        let is_note = key.starts_with('#') || key.starts_with("SUM") || key.starts_with("sum");
        if is_note && !key.contains('{') {
            continue;
        }
        let columns: Vec<&str> = columns.collect();
        let row = row(i + 1, key, &columns).map_err(error)?;
        match blocks.last_mut() {
            Some(block) if block[0].batch == row.batch => block.push(row),
            _ => {
                if let Some(earlier) =
                    blocks.iter().map(|block| &block[0]).find(|row_| row_.batch == row.batch)
                {
                    let problem =
                        format!("batch {} is there twice, first from line {} on", row.batch, earlier.line);
                    return Err(error(problem));
                }
                blocks.push(vec![row]);
            }
        }
    }
    if blocks.is_empty() {
        return Err(ProfileError::Published { line: 1, problem: "there are no rows".into() });
    }
    blocks.sort_by_key(|block| block[0].batch);
    Ok(blocks)
}

fn row(line: usize, key: &str, columns: &[&str]) -> Result<PublishedRow, String> {
    let expected = || {
        format!(
            "expected a layer such as `linear{{\"in_features\":8,\"out_features\":4}}[32]8`, found `{key}`"
        )
    };
    let (kind, rest) = key.split_at(key.find('{').ok_or_else(expected)?);
    let mut json = serde_json::Deserializer::from_str(rest).into_iter::<Parameters>();
    let Parameters(parameters) = json.next().and_then(Result::ok).ok_or_else(expected)?;
    let rest = rest.get(json.byte_offset()..).and_then(|rest| rest.strip_prefix('[')).ok_or_else(expected)?;
    let (batch, input) = rest.split_once(']').ok_or_else(expected)?;
    let batch = batch.parse().ok().filter(|&batch| batch > 0).ok_or_else(expected)?;
    let input = input.strip_prefix('[').and_then(|input| input.strip_suffix(']')).unwrap_or(input);
    let input = input.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| expected())?;
    let &[_all_ms, forward_us, backward_us] = columns else {
        return Err(format!(
            "expected three times (all in ms, forward and backward in us), found {}; files of percentiles do \
             not tell forward from backward and cannot be imported",
            columns.len()
        ));
    };
    Ok(PublishedRow {
        line,
        text: key.into(),
        kind: kind.into(),
        parameters,
        batch,
        input,
        forward: microseconds(forward_us)?,
        backward: microseconds(backward_us)?,
    })
}

fn microseconds(text: &str) -> Result<Duration, String> {
    let time = text.parse::<f64>().ok().and_then(|us| Duration::try_from_secs_f64(us / 1e6).ok());
    time.filter(|time| *time <= MAX_TIME)
        .ok_or_else(|| format!("expected a time in microseconds, from 0 to 1e12 (11 days), found `{text}`"))
}
