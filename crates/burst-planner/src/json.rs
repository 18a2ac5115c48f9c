//! The format `deeppool/plan-problem/v1`, and what reading any format begins with.

use serde::{Deserialize, Serialize};

use crate::{Edge, Error, Node, PlanProblem, Result};

const SCHEMA: &str = "deeppool/plan-problem/v1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    schema: String,
    gpus: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_limit_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    single_gpu_us: Option<f64>,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
}

/// Read before everything else, so that a document of another kind is called that and not a list of
/// unexpected fields.
#[derive(Deserialize)]
struct Header {
    schema: Option<serde_json::Value>,
}

impl PlanProblem {
    #[doc = include_str!("../docs/plan-problem.md")]
    pub fn from_json(text: &str) -> Result<Self> {
        check_schema(text, SCHEMA)?;
        let Document { schema: _, gpus, memory_limit_bytes, single_gpu_us, nodes, edges } = parse(text)?;
        let problem = Self { gpus, memory_limit_bytes, single_gpu_us, nodes, edges };
        problem.validate()?;
        Ok(problem)
    }

    /// Writes the problem as a JSON document that [`from_json`](Self::from_json) reads back unchanged.
    ///
    /// # Errors
    /// What [`validate`](Self::validate) finds: an invalid problem is not written.
    pub fn to_json(&self) -> Result<String> {
        self.validate()?;
        let document = Document {
            schema: SCHEMA.into(),
            gpus: self.gpus,
            memory_limit_bytes: self.memory_limit_bytes,
            single_gpu_us: self.single_gpu_us,
            nodes: self.nodes.clone(),
            edges: self.edges.clone(),
        };
        serde_json::to_string(&document)
            .map_err(|error| Error::Json { path: ".".into(), message: error.to_string() })
    }
}

/// The schema that a document names, if it names one by a string.
pub(crate) fn schema(text: &str) -> Result<Option<String>> {
    let header: Header = parse(text)?;
    Ok(header.schema.and_then(|schema| schema.as_str().map(str::to_owned)))
}

pub(crate) fn check_schema(text: &str, expected: &'static str) -> Result<()> {
    let header: Header = parse(text)?;
    let found = match header.schema {
        Some(serde_json::Value::String(schema)) if schema == expected => return Ok(()),
        Some(other) => other.to_string(),
        None => "none".into(),
    };
    Err(Error::Schema { found, expected })
}

pub(crate) fn parse<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| Error::Json {
        path: error.path().to_string(),
        message: error.inner().to_string(),
    })?;
    reader.end().map_err(|error| Error::Json { path: ".".into(), message: error.to_string() })?;
    Ok(value)
}
