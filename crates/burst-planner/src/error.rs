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
    /// The backward part of an option is longer than the whole.
    #[error("node `{node}`, option {option}: backward_us is {backward_us}, more than time_us, {time_us}")]
    BackwardTooLong {
        /// The node's name.
        node: String,
        /// Index of the option.
        option: usize,
        /// The backward part, microseconds.
        backward_us: f64,
        /// Forward and backward together, microseconds.
        time_us: f64,
    },
    /// Times so large that their sum is not a number any more.
    #[error("the times add up to more than a number can hold")]
    TimesOverflow,
    /// A problem with a memory limit must say what every option takes.
    #[error(
        "node `{node}`, option {option}: memory_bytes is missing, and the problem has memory_limit_bytes"
    )]
    MissingMemory {
        /// The node's name.
        node: String,
        /// Index of the option.
        option: usize,
    },
    /// The single-GPU time cannot be derived.
    #[error("node `{node}` has no option with one GPU: give single_gpu_us")]
    MissingSingleGpuTime {
        /// The first node without a one-GPU option.
        node: String,
    },
    /// Amplification is a multiple of the single-GPU time, which therefore cannot be zero.
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
    /// A transfer matrix whose shape is not (producer's options) x (consumer's options).
    #[error("edge {edge} (`{from}` to `{to}`): {field} {found}, expected {rows} rows of {columns}")]
    MatrixShape {
        /// Index of the edge.
        edge: usize,
        /// Name of the producer.
        from: String,
        /// Name of the consumer.
        to: String,
        /// The field's name.
        field: &'static str,
        /// What was found.
        found: String,
        /// The producer's options.
        rows: usize,
        /// The consumer's options.
        columns: usize,
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
    #[error("gpus is {gpus}, expected at most {most}")]
    TooManyGpus {
        /// How many.
        gpus: usize,
        /// How many there may be.
        most: usize,
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
    /// A choice of another length than the problem has nodes.
    #[error("the choice names {found} options, the problem has {nodes} nodes")]
    ChoiceLength {
        /// Entries of the choice.
        found: usize,
        /// Nodes of the problem.
        nodes: usize,
    },
    /// A choice of an option that a node does not have.
    #[error("the choice takes option {option} of node `{node}`, which has {options}")]
    ChoiceOption {
        /// The node's name.
        node: String,
        /// The option asked for.
        option: usize,
        /// How many there are.
        options: usize,
    },
    /// An amplification limit below 1, or not a number.
    #[error("the amplification limit is {limit}, expected a number that is at least 1")]
    BadLimit {
        /// The limit asked for.
        limit: f64,
    },
    /// A budget of GPU time that is negative or not a number.
    #[error("the budget of GPU time is {budget_us} us, expected a number that is not negative")]
    BadBudget {
        /// The budget asked for, microseconds.
        budget_us: f64,
    },
    /// A deadline that is negative or not a number.
    #[error("the deadline is {deadline_us} us, expected a number that is not negative")]
    BadDeadline {
        /// The deadline asked for, microseconds.
        deadline_us: f64,
    },
    /// A tolerance that is negative, infinite or not a number.
    #[error("epsilon is {epsilon}, expected a finite number that is not negative")]
    BadEpsilon {
        /// The tolerance asked for.
        epsilon: f64,
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
    /// No plan takes as little GPU time as was asked for.
    #[error(
        "no plan takes {budget_us} us of GPU time or less: the smallest that can be reached is {smallest_us} us"
    )]
    BudgetUnreachable {
        /// The budget asked for, microseconds.
        budget_us: f64,
        /// The smallest GPU time of any plan, microseconds; asking for it succeeds.
        smallest_us: f64,
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
    /// Rank 0 holds a share of every node, and even the smallest shares do not fit.
    #[error(
        "nothing fits: rank 0 needs at least {needed_bytes} bytes, memory_limit_bytes is {limit_bytes}; most is taken by {}",
        list(largest)
    )]
    DoesNotFit {
        /// What rank 0 may hold.
        limit_bytes: u64,
        /// What it must hold with the smallest option of each node.
        needed_bytes: u64,
        /// The nodes whose smallest options take most, largest first, with what they take.
        largest: Vec<(String, u64)>,
    },
    /// Even with branches on ranks of their own no plan keeps the memory limit.
    #[error(
        "nothing fits, not even with branches at the same time: memory_limit_bytes is {limit_bytes}; most is taken by {}",
        list(largest)
    )]
    DoesNotFitInWaves {
        /// What a rank may hold.
        limit_bytes: u64,
        /// The nodes whose smallest options take most, largest first, with what they take.
        largest: Vec<(String, u64)>,
    },
    /// Data parallelism needs one GPU count that all nodes have.
    #[error("no data-parallel plan: no GPU count is an option of every node")]
    NoDataParallelPlan,
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
    /// With overlap a plan is found for one limit at a time.
    #[error(
        "there is no frontier with overlapping all-reduces: ask for the fastest plan under each limit, or for the additive model"
    )]
    NoFrontierWithOverlap,
    /// The graph is so densely connected that its tables would not fit into memory.
    #[error(
        "the graph is too densely connected for an exact answer: eliminating node `{node}` ties {} together ({entries} table entries); fewer options a node would help",
        names(neighbours)
    )]
    TooWide {
        /// The node whose elimination is too large.
        node: String,
        /// The nodes that it would tie together.
        neighbours: Vec<String>,
        /// Entries of all tables up to and including this one.
        entries: u64,
    },
    /// A schedule names a region that the graph does not have.
    #[error(
        "the schedule has waves from `{fork}` to `{join}`, which are not the fork and the join of a region"
    )]
    NoSuchRegion {
        /// The node that should be a fork.
        fork: String,
        /// The node that should be its join.
        join: String,
    },
    /// The waves of a region do not hold each of its branches once.
    #[error("the waves from `{fork}` to `{join}`: {message}")]
    BadWaves {
        /// The fork's name.
        fork: String,
        /// The join's name.
        join: String,
        /// What is wrong.
        message: String,
    },
    /// The branches of a wave need more GPUs than their region has.
    #[error("wave {wave} from `{fork}` to `{join}` needs {gpus} GPUs, and there are {available}")]
    WaveTooWide {
        /// The fork's name.
        fork: String,
        /// The join's name.
        join: String,
        /// Index of the wave.
        wave: usize,
        /// The widths of its branches, added up.
        gpus: usize,
        /// The width of the region.
        available: usize,
    },
    /// A branch is placed apart from its fork and join, and it is not known what that costs.
    #[error(
        "the waves from `{fork}` to `{join}` place `{from}` and `{to}` on different ranks, and their edge has no transfer_disjoint_us"
    )]
    NoDisjointTransfer {
        /// The fork's name.
        fork: String,
        /// The join's name.
        join: String,
        /// Name of the producer.
        from: String,
        /// Name of the consumer.
        to: String,
    },
    /// A region has so many branches that there are too many ways to split them into waves.
    #[error(
        "the region from `{fork}` to `{join}` has {branches} branches, and at most {most} can be tried at the same time: run branches one after another, or leave out transfer_disjoint_us where they should not part"
    )]
    TooManyBranches {
        /// The fork's name.
        fork: String,
        /// The join's name.
        join: String,
        /// How many branches there are.
        branches: usize,
        /// How many there may be.
        most: usize,
    },
    /// With a memory limit and branches at the same time, too many partial plans differ in what some rank holds.
    #[error(
        "the memory limit binds, and with branches at the same time too many plans differ in what some rank holds (max_labels is {max_labels}): run branches one after another, raise memory_limit_bytes or max_labels, or give fewer options a node"
    )]
    TooManyLoads {
        /// The bound in force.
        max_labels: usize,
    },
    /// The search kept more partial plans than it was allowed to.
    #[error(
        "the search needs more than {max_labels} labels: raise epsilon (now {epsilon}) or max_labels, or give fewer options a node"
    )]
    TooManyLabels {
        /// The bound in force.
        max_labels: usize,
        /// The tolerance in force.
        epsilon: f64,
    },
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

fn list(largest: &[(String, u64)]) -> String {
    let items: Vec<String> = largest.iter().map(|(name, bytes)| format!("`{name}` ({bytes})")).collect();
    items.join(", ")
}

fn names(nodes: &[String]) -> String {
    let items: Vec<String> = nodes.iter().map(|name| format!("`{name}`")).collect();
    items.join(", ")
}

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
