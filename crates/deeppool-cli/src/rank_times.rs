//! Table of the times of each rank with partial backpropagation.

use comfy_table::Table;
use deeppool::simulate::RankTime;

use super::output::{byte_size, micros, ranks, table};

/// Returns a table of the mean simulated times of all ranks in an iteration, and of the minimum and
/// maximum over the iterations after which the programs repeat. Ranks with equal figures share a
/// row.
pub(super) fn rank_times(by_rank: &[RankTime]) -> Table {
    let mut shown = table(&[
        "ranks",
        "computing",
        "only communicating",
        "idle",
        "computing, by iteration",
        "memory needed, by iteration",
    ]);
    let mut rows: Vec<(Vec<usize>, [String; 5])> = Vec::new();
    for time in by_rank {
        let cells = cells(time);
        match rows.iter_mut().find(|(_, known)| *known == cells) {
            Some((of_row, _)) => of_row.push(time.rank),
            None => rows.push((vec![time.rank], cells)),
        }
    }
    for (of_row, cells) in rows {
        shown.add_row(std::iter::once(ranks(&of_row)).chain(cells));
    }
    shown
}

fn cells(time: &RankTime) -> [String; 5] {
    let computing = time.by_iteration.iter().map(|of| of.computing_us);
    let (min, max) =
        computing.fold((f64::INFINITY, 0.0), |(min, max): (f64, f64), us| (min.min(us), max.max(us)));
    let needed = || time.by_iteration.iter().map(|of| of.needed_bytes);
    let bytes = |bytes: Option<u64>| byte_size(bytes.unwrap_or_default());
    [
        micros(time.computing_us),
        micros(time.communicating_us),
        micros(time.idle_us),
        format!("{} to {}", micros(min), micros(max)),
        format!("{} to {}", bytes(needed().min()), bytes(needed().max())),
    ]
}
