//! What can go wrong, and what is needed to correct it.

/// Everything that this crate reports.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a JSON document of the expected form.
    #[error("{path}: {message}")]
    Json {
        /// Where in the document, such as `nodes[0].options[1].time_us`; `.` is the document itself.
        path: String,
        /// What was expected there, with line and column.
        message: String,
    },
    /// The document is of another kind or version.
    #[error("schema: found {found}, expected \"{expected}\"")]
    Schema {
        /// What the document says that it is.
        found: String,
        /// The schema that this crate reads.
        expected: &'static str,
    },
    /// The document is of the format `deeppool/plan-problem/v1`, which is no longer read.
    #[error(
        "the format deeppool/plan-problem/v1 is no longer read: write version 2, which has forward and backward steps, \
         transfers by GPU counts, and all-reduces by size; the page of `PlanProblem::from_json` lists the fields, \
         and crates/burst-planner/examples/plan_problem.py writes a complete problem"
    )]
    OldFormat,
    /// A search was told to stop before it had an answer.
    #[error("the search was stopped")]
    Stopped,
    /// A problem needs at least one GPU.
    #[error("gpus is 0: a problem needs at least one GPU")]
    NoGpus,
    /// A problem needs at least one node.
    #[error("the problem has no nodes")]
    NoNodes,
    /// Two nodes have the same name, so that a plan could not tell them apart.
    #[error("nodes {first} and {second} are both named `{name}`")]
    DuplicateName {
        /// The name.
        name: String,
        /// Index of the first of the two.
        first: usize,
        /// Index of the second of the two.
        second: usize,
    },
    /// A node that nothing can be chosen for.
    #[error("node `{node}` has no options")]
    NoOptions {
        /// The node's name.
        node: String,
    },
    /// An option with no GPU, or with more GPUs than there are.
    #[error("node `{node}`, option {option}: needs {gpus} GPUs, expected 1 to {available}")]
    OptionGpus {
        /// The node's name.
        node: String,
        /// Index of the option.
        option: usize,
        /// The GPU count that it asks for.
        gpus: usize,
        /// The GPUs of the problem.
        available: usize,
    },
    /// A time that is negative, infinite or not a number.
    #[error("{place}: {field} is {value}, expected a finite time that is not negative")]
    BadTime {
        /// The node and option, or the edge and its matrix cell.
        place: String,
        /// The field's name.
        field: &'static str,
        /// The value found.
        value: f64,
    },
    /// Times so large that their sum is not a number any more.
    #[error("the times add up to more than a number can hold")]
    TimesOverflow,
    /// The time on one GPU is 0. Amplification, a multiple of it, is not defined.
    #[error("the time on a single GPU is 0: amplification is not defined")]
    ZeroSingleGpuTime,
    /// An edge that starts or ends nowhere.
    #[error("edge {edge}: node {node} does not exist, there are {nodes} nodes")]
    EdgeToNowhere {
        /// Index of the edge.
        edge: usize,
        /// The index that it names.
        node: usize,
        /// The number of nodes.
        nodes: usize,
    },
    /// An edge from a node to itself.
    #[error("edge {edge} leads from node `{node}` to itself")]
    SelfEdge {
        /// Index of the edge.
        edge: usize,
        /// The node's name.
        node: String,
    },
    /// Two edges between the same nodes; add their matrices instead.
    #[error("edges {first} and {second} both lead from `{from}` to `{to}`")]
    DuplicateEdge {
        /// Index of the first of the two.
        first: usize,
        /// Index of the second of the two.
        second: usize,
        /// Name of the producer.
        from: String,
        /// Name of the consumer.
        to: String,
    },
    /// The edges form a cycle.
    #[error("the edges form a cycle through node `{node}`")]
    Cycle {
        /// A node on the cycle.
        node: String,
    },
    /// A node uses the parameters of one that does not exist, or that has none of its own.
    #[error("node `{node}` uses the parameters of a node that has none of its own")]
    NoParametersToShare {
        /// The node's name.
        node: String,
    },
    /// Ranks or an order that do not belong to the problem.
    #[error("the arrangement does not fit the problem: {message}")]
    BadArrangement {
        /// What is wrong with which node.
        message: String,
    },
    /// There was nothing to evaluate.
    #[error("there is no arrangement to evaluate")]
    NoArrangement,
    /// There are no times for a node on so many GPUs.
    #[error("node `{node}` cannot run on {gpus} GPUs: there are no times for that")]
    NoTimes {
        /// The node's name.
        node: String,
        /// The GPU count.
        gpus: usize,
    },
    /// More GPUs than a problem of this format may have, since ranks are listed one by one.
    #[error("gpus is {gpus}, expected at most {max}")]
    TooManyGpus {
        /// How many.
        gpus: usize,
        /// How many there may be.
        max: usize,
    },
    /// It is not known what moving a node's output takes.
    #[error(
        "node `{node}`: there is no time for moving its output, or the output's gradient, from {from} to {to} GPUs"
    )]
    NoTransfer {
        /// The node's name.
        node: String,
        /// The GPU count where it comes from.
        from: usize,
        /// The GPU count where it goes to.
        to: usize,
    },
    /// It is not known what an all-reduce takes.
    #[error("all_reduce has no entry for {gpus} GPUs or more, which a gradient may be reduced between")]
    NoAllReduce {
        /// The GPU count.
        gpus: usize,
    },
    /// Too many groups of ranks that do different things.
    #[error(
        "{classes} groups of ranks do different things, and at most 65,535 can be told apart: place nodes on fewer different sets of ranks"
    )]
    TooManyClasses {
        /// How many.
        classes: usize,
    },
    /// An amplification limit below 1, or not a number.
    #[error("the amplification limit is {limit}, expected a number that is at least 1")]
    BadLimit {
        /// The limit asked for.
        limit: f64,
    },
    /// A deadline that is negative or not a number.
    #[error("the deadline is {deadline_us} us, expected a number that is not negative")]
    BadDeadline {
        /// The deadline asked for, microseconds.
        deadline_us: f64,
    },
    /// No plan wastes as little GPU time as was asked for.
    #[error(
        "no plan has an amplification of {limit} or less: the smallest that can be reached is {smallest}"
    )]
    LimitUnreachable {
        /// The limit asked for.
        limit: f64,
        /// The smallest amplification of any plan; asking for it succeeds.
        smallest: f64,
    },
    /// A GPU has no room for what it would hold.
    #[error(
        "no plan fits: a GPU can hold {}, and the one that comes closest needs {}, most of it for {}: give more GPUs, GPUs with \
         more memory, or a smaller batch",
        size(*limit_bytes), size(*needed_bytes), largest(nodes)
    )]
    MemoryExceeded {
        /// What a GPU can hold.
        limit_bytes: u64,
        /// What the fullest GPU would hold.
        needed_bytes: u64,
        /// The nodes that it would hold most for, with their bytes, the largest first.
        nodes: Vec<(String, u64)>,
    },
    /// A node cannot be a checkpoint.
    #[error(
        "node `{node}` cannot be a checkpoint: every other node has to come before or after it, and one after it; \
         leave it out"
    )]
    NotACheckpoint {
        /// The node's name.
        node: String,
    },
    /// No plan is as fast as was asked for.
    #[error(
        "no plan takes {deadline_us} us or less: the smallest iteration time that can be reached is {smallest_us} us"
    )]
    DeadlineUnreachable {
        /// The deadline asked for, microseconds.
        deadline_us: f64,
        /// The smallest iteration time of any plan, microseconds; asking for it succeeds.
        smallest_us: f64,
    },
    /// The original's limit rule is defined along a chain.
    #[error(
        "the limit for each layer is defined for chains only, and node `{node}` is not part of one: use a limit for the whole plan"
    )]
    NotAChain {
        /// A node with several producers or consumers, or a second one without producers.
        node: String,
    },
    /// The original's limit rule does not look at memory.
    #[error(
        "the limit for each layer knows nothing of memory: leave memory_limit_bytes out, or use a limit for the whole plan"
    )]
    MemoryLimitPerLayer,
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Bytes in the largest decimal unit of which there is one.
fn size(bytes: u64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.into_iter().find(|(unit, _)| bytes as f64 >= *unit);
    unit.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{:.2} {name}", bytes as f64 / unit))
}

fn largest(nodes: &[(String, u64)]) -> String {
    let named: Vec<String> =
        nodes.iter().map(|(name, bytes)| format!("`{name}` ({})", size(*bytes))).collect();
    named.join(", ")
}

/// Checks that a time is finite and not negative. `place` names the value in the error.
pub(crate) fn check_time(value: f64, field: &'static str, place: impl FnOnce() -> String) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(Error::BadTime { place: place(), field, value })
}
