//! Errors of the planner.

/// Errors of the planner.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a JSON document of the expected form.
    #[error("{path}: {message}")]
    Json {
        /// Path in the document, such as `nodes[0].options[1].forward_us`; `.` is the document
        /// itself.
        path: String,
        /// The expected value, with line and column.
        message: String,
    },
    /// The document is of another format or version.
    #[error("schema: found {found}, expected \"{expected}\"")]
    Schema {
        /// The document's schema, or `none`.
        found: String,
        /// The schema that this crate reads.
        expected: &'static str,
    },
    /// The document is of the format `deeppool/plan-problem/v1`, which is no longer read.
    #[error(
        "the format deeppool/plan-problem/v1 is no longer read: write version 2, which has forward and \
         backward steps, transfers by GPU counts, and all-reduces by size; the page of \
         `PlanProblem::from_json` lists the fields, and crates/burst-planner/examples/plan_problem.py \
         writes a complete problem"
    )]
    OldFormat,
    /// The search was stopped before it had a result.
    #[error("the search was stopped")]
    Stopped,
    /// The text is no budget of a proof.
    #[error("`{text}` is no budget of a proof: expected off, default, or a time such as 30s")]
    BadProofBudget {
        /// The text.
        text: String,
    },
    /// A problem needs at least one GPU.
    #[error("gpus is 0: a problem needs at least one GPU")]
    NoGpus,
    /// A problem needs at least one node.
    #[error("the problem has no nodes")]
    NoNodes,
    /// Two nodes have the same name.
    #[error("nodes {first} and {second} are both named `{name}`")]
    DuplicateName {
        /// The name.
        name: String,
        /// Index of the first of the two nodes.
        first: usize,
        /// Index of the second of the two nodes.
        second: usize,
    },
    /// A node has no GPU count to run on.
    #[error("node `{node}` has no options")]
    NoOptions {
        /// The node's name.
        node: String,
    },
    /// A GPU count is 0 or larger than the number of GPUs.
    #[error("node `{node}`, option {option}: needs {gpus} GPUs, expected 1 to {available}")]
    OptionGpus {
        /// The node's name.
        node: String,
        /// Index of the count among the GPU counts of the node.
        option: usize,
        /// The GPU count.
        gpus: usize,
        /// Number of GPUs of the problem.
        available: usize,
    },
    /// A split has fewer than two parts.
    #[error("node `{node}`, split {split}: has {parts} parts, expected at least 2")]
    SplitParts {
        /// The node's name.
        node: String,
        /// Index of the split among those of the node.
        split: usize,
        /// Number of its parts.
        parts: usize,
    },
    /// A time is negative, infinite or not a number.
    #[error("{place}: {field} is {value}, expected a finite time that is not negative")]
    BadTime {
        /// The node, transfer or all-reduce that the time belongs to.
        place: String,
        /// The field's name.
        field: &'static str,
        /// The value.
        value: f64,
    },
    /// The sum of all times overflows.
    #[error("the times add up to more than a number can hold")]
    TimesOverflow,
    /// The time on one GPU is 0. Amplification, a multiple of it, is not defined.
    #[error("the time on a single GPU is 0: amplification is not defined")]
    ZeroSingleGpuTime,
    /// An edge refers to a node that does not exist.
    #[error("edge {edge}: node {node} does not exist, there are {nodes} nodes")]
    EdgeToNowhere {
        /// Index of the edge in the problem.
        edge: usize,
        /// Index of the node that does not exist.
        node: usize,
        /// Number of nodes of the problem.
        nodes: usize,
    },
    /// An edge leads from a node to itself.
    #[error("edge {edge} leads from node `{node}` to itself")]
    SelfEdge {
        /// Index of the edge in the problem.
        edge: usize,
        /// The node's name.
        node: String,
    },
    /// Two edges join the same nodes.
    #[error("edges {first} and {second} both lead from `{from}` to `{to}`")]
    DuplicateEdge {
        /// Index of the first of the two edges.
        first: usize,
        /// Index of the second of the two edges.
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
    /// A node uses the parameters of a node that does not exist or has no parameters.
    #[error("node `{node}` uses the parameters of a node that has none of its own")]
    NoParametersToShare {
        /// The node's name.
        node: String,
    },
    /// The ranks or the order of an arrangement do not fit the problem.
    #[error("the arrangement does not fit the problem: {message}")]
    BadArrangement {
        /// The node and the reason.
        message: String,
    },
    /// No arrangement was given.
    #[error("there is no arrangement to evaluate")]
    NoArrangement,
    /// The cost model has no times for a node on a GPU count.
    #[error("node `{node}` cannot run on {gpus} GPUs: there are no times for that")]
    NoTimes {
        /// The node's name.
        node: String,
        /// The GPU count.
        gpus: usize,
    },
    /// The cost model has no times for a node with a split on a GPU count.
    #[error("node `{node}` cannot run with split {split} on {gpus} GPUs: there are no times for that")]
    NoSplitTimes {
        /// The node's name.
        node: String,
        /// Index of the split among those of the node.
        split: usize,
        /// The GPU count.
        gpus: usize,
    },
    /// There are more GPUs than a problem with cost tables may have.
    #[error("gpus is {gpus}, expected at most {max}")]
    TooManyGpus {
        /// Number of GPUs of the problem.
        gpus: usize,
        /// Maximum number of GPUs.
        max: usize,
    },
    /// The cost tables have no time for a transfer.
    #[error(
        "node `{node}`: there is no time for moving its output, or the output's gradient, from {from} to \
         {to} GPUs"
    )]
    NoTransfer {
        /// The node's name.
        node: String,
        /// Number of GPUs that the output comes from.
        from: usize,
        /// Number of GPUs that it goes to.
        to: usize,
    },
    /// The cost tables have no time for an all-reduce.
    #[error("all_reduce has no entry for {gpus} GPUs or more, which a gradient may be reduced between")]
    NoAllReduce {
        /// Number of ranks of the largest all-reduce that an arrangement can need.
        gpus: usize,
    },
    /// An arrangement has too many classes of ranks. The ranks of a class do the same work.
    #[error(
        "the ranks do {classes} different kinds of work, and at most 65,535 are supported: place nodes on \
         fewer different sets of ranks"
    )]
    TooManyClasses {
        /// Number of classes.
        classes: usize,
    },
    /// The amplification limit is below 1 or not a number.
    #[error("the amplification limit is {limit}, expected a number that is at least 1")]
    BadLimit {
        /// The given amplification limit.
        limit: f64,
    },
    /// The deadline is negative or not a number.
    #[error("the deadline is {deadline_us} us, expected a number that is not negative")]
    BadDeadline {
        /// The deadline, microseconds.
        deadline_us: f64,
    },
    /// No plan is within the amplification limit.
    #[error(
        "no plan has an amplification of {limit} or less: the smallest that can be reached is {smallest}"
    )]
    LimitUnreachable {
        /// The given amplification limit.
        limit: f64,
        /// The smallest amplification of any plan that was found; it can be used as a limit.
        smallest: f64,
    },
    /// No plan that was found is within the memory limit.
    #[error(
        "no plan fits: a GPU can hold {}, and the one that comes closest needs {}, most of it for {}: give \
         more GPUs, GPUs with more memory, or a smaller batch",
        size(*limit_bytes), size(*needed_bytes), largest(nodes)
    )]
    MemoryExceeded {
        /// Memory of a GPU, bytes.
        limit_bytes: u64,
        /// Memory of the fullest GPU in the plan that exceeds the limit least, bytes.
        needed_bytes: u64,
        /// Names of the nodes with the most memory on that GPU and their bytes there, in descending
        /// order.
        nodes: Vec<(String, u64)>,
    },
    /// A node cannot be a checkpoint.
    #[error(
        "node `{node}` cannot be a checkpoint: every other node has to come before or after it, and one \
         after it; leave it out"
    )]
    NotACheckpoint {
        /// The node's name.
        node: String,
    },
    /// No plan meets the deadline.
    #[error(
        "no plan takes {deadline_us} us or less: the smallest iteration time that can be reached is \
         {smallest_us} us"
    )]
    DeadlineUnreachable {
        /// The deadline, microseconds.
        deadline_us: f64,
        /// The smallest iteration time of any plan that was found, microseconds; it can be used as
        /// a deadline.
        smallest_us: f64,
    },
    /// A limit per layer is defined for chains only.
    #[error(
        "the limit for each layer is defined for chains only, and node `{node}` is not part of one: use a \
         limit for the whole plan"
    )]
    NotAChain {
        /// The first node that has several producers or consumers, or starts a second chain.
        node: String,
    },
    /// A limit per layer cannot be combined with a memory limit.
    #[error(
        "a limit for each layer cannot be combined with a memory limit: leave memory_limit_bytes out, or \
         use a limit for the whole plan"
    )]
    MemoryLimitPerLayer,
}

/// Result with the planner's error.
pub type Result<T> = std::result::Result<T, Error>;

/// Formats bytes in the largest decimal unit that gives at least 1.
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
