//! Tables of measured times.

use std::time::Duration;

use collectives::{LinkModel, Measurement};
use layer_profile::{LayerProfile, MeasurementConditions, ProfileError, ProfileTable, Spread};

use super::output::{byte_size, print_message, table, time};

/// Prints all times of a measured profile with their spread, and the sum of the layers' times
/// beside the time of the whole network.
///
/// # Errors
/// If a layer has no time for a batch size of the whole network.
pub(crate) fn print_measured(profile: &ProfileTable) -> anyhow::Result<()> {
    print_message!("{} on {}, {}", profile.model(), profile.device(), profile.origin());
    if let Some(measurement) = profile.measurement() {
        print_message!("{}", conditions(measurement));
    }
    let mut marks = Marks::default();
    print_message!("\nEach layer alone\n{}", layers(profile.layers(), &mut marks));
    if profile.parts().len() > 0 {
        let parts: Vec<LayerProfile> = profile.parts().map(with_shapes).collect();
        print_message!("\nEach part of a split layer alone\n{}", layers(&parts, &mut marks));
    }
    print_message!("\nThe whole network\n{}", whole(profile, &mut marks)?);
    if marks.warm_up_unstable > 0 {
        print_message!(
            "\n* the warm-up ended before these {} of {} times were stable",
            marks.warm_up_unstable,
            marks.times
        );
    }
    Ok(())
}

/// Prints the times of a network on one rank alone and on several at once, and the collectives
/// beside the fitted link model.
///
/// # Errors
/// If a layer lacks a time.
pub(crate) fn print_ranks(
    profile: &ProfileTable,
    link: &LinkModel,
    collectives: &[Measurement],
) -> anyhow::Result<()> {
    print_message!("{} on {}, {}", profile.model(), profile.device(), profile.origin());
    if let Some(measurement) = profile.measurement() {
        print_message!("{}", conditions(measurement));
    }
    let Some(contended) = profile.contended() else { return Ok(()) };
    let at_once = format!("{} ranks at once", contended.ranks());
    let mut shown = table(&["batch", "one rank alone", &at_once, "ratio"]);
    for row in profile.network() {
        let alone = profile.sum_of_layers(row.batch)?.total();
        let rows = contended.layers().iter().map(|layer| Ok(layer.time(row.batch)?.total()));
        let several = rows.sum::<Result<Duration, ProfileError>>()?;
        let ratio = several.as_secs_f64() / alone.as_secs_f64().max(f64::MIN_POSITIVE);
        shown.add_row([row.batch.to_string(), time(alone), time(several), format!("{ratio:.3}")]);
    }
    print_message!("\nComputing in an iteration, sum of the layers\n{shown}");
    print_message!("the slowest rank of an iteration takes {:.1}% longer", 100.0 * contended.jitter());
    let mut shown = table(&["collective", "size", "measured", "link model", "error"]);
    for of in collectives {
        let modelled = link.cost(of.collective, of.ranks, of.bytes);
        let error = modelled.as_secs_f64() / of.time.as_secs_f64() - 1.0;
        let size = byte_size(of.bytes);
        let error = format!("{:+.1}%", 100.0 * error);
        shown.add_row([of.collective.to_string(), size, time(of.time), time(modelled), error]);
    }
    print_message!("\nCollectives of {} ranks\n{shown}", contended.ranks());
    Ok(())
}

fn conditions(measurement: &MeasurementConditions) -> String {
    let MeasurementConditions { profiler, libraries, clock_mhz, precision, repeats } = measurement;
    let mut parts = vec![format!("{precision}, medians of {repeats} ± their median absolute deviation")];
    parts.extend(clock_mhz.map(|clock| format!("{clock} MHz")));
    parts.extend(libraries.iter().map(|(library, version)| format!("{library} {version}")));
    parts.push(format!("layer-profile {profiler}"));
    parts.join("; ")
}

/// Counts of all printed times and of those that were not stable.
#[derive(Default)]
struct Marks {
    times: usize,
    /// Number of times whose warm-up ended before they were stable.
    warm_up_unstable: usize,
}

impl Marks {
    /// Returns the cells for a median, its deviation and its outliers.
    fn cells(&mut self, median: Duration, spread: Option<Spread>) -> [String; 3] {
        let Some(Spread { deviation, outliers, warm_up_unstable }) = spread else {
            return [time(median), String::new(), String::new()];
        };
        self.times += 1;
        self.warm_up_unstable += usize::from(warm_up_unstable);
        let mark = if warm_up_unstable { " *" } else { "" };
        let outliers = outliers.map(|count| count.to_string()).unwrap_or_default();
        let percent = 100.0 * deviation.as_secs_f64() / median.as_secs_f64().max(f64::MIN_POSITIVE);
        [time(median), format!("± {percent:.1}%{mark}"), outliers]
    }
}

/// Returns the row of a part with its shapes in the name, such as `fc, 512 -> 256`. Of parts of the
/// same shapes, one may have no bias.
fn with_shapes(part: &LayerProfile) -> LayerProfile {
    let structure = part.structure.as_deref().unwrap_or_default();
    let shapes = structure.rsplit_once(", ").map_or(structure, |(_, shapes)| shapes);
    let bias = if structure.contains("bias=false") { ", no bias" } else { "" };
    LayerProfile { name: format!("{}, {shapes}{bias}", part.name), ..part.clone() }
}

fn layers(rows: &[LayerProfile], marks: &mut Marks) -> comfy_table::Table {
    let header = ["layer", "batch", "forward", "", "outliers", "backward", "", "outliers", "update", ""];
    let mut shown = table(&header);
    for layer in rows {
        for (i, row) in layer.times.iter().enumerate() {
            let name = if i == 0 { layer.name.clone() } else { String::new() };
            let forward = marks.cells(row.forward, row.spread.map(|spread| spread.forward));
            let backward = marks.cells(row.backward, row.spread.map(|spread| spread.backward));
            // The update does not depend on the batch.
            let update = match layer.update.filter(|_| i == 0) {
                Some(update) => marks.cells(update, layer.update_spread),
                None => Default::default(),
            };
            let times = forward.into_iter().chain(backward).chain(update.into_iter().take(2));
            shown.add_row([name, row.batch.to_string()].into_iter().chain(times));
        }
    }
    shown
}

fn whole(profile: &ProfileTable, marks: &mut Marks) -> anyhow::Result<comfy_table::Table> {
    let header = [
        "batch",
        "forward",
        "",
        "backward",
        "",
        "update",
        "",
        "outliers",
        "iteration",
        "sum of layers",
        "difference",
    ];
    let mut shown = table(&header);
    for row in profile.network() {
        let [forward, forward_mad, forward_outliers] =
            marks.cells(row.time.forward, row.spread.map(|spread| spread.forward));
        let [backward, backward_mad, backward_outliers] =
            marks.cells(row.time.backward, row.spread.map(|spread| spread.backward));
        let [update, update_mad, update_outliers] =
            marks.cells(row.time.update, row.spread.map(|spread| spread.update));
        let (whole, alone) = (row.time.total(), profile.sum_of_layers(row.batch)?.total());
        shown.add_row([
            row.batch.to_string(),
            forward,
            forward_mad,
            backward,
            backward_mad,
            update,
            update_mad,
            [forward_outliers, backward_outliers, update_outliers].join(" "),
            time(whole),
            time(alone),
            difference(alone, whole),
        ]);
    }
    Ok(shown)
}

/// Returns the relative difference of the first to the second, in percent.
fn difference(first: Duration, second: Duration) -> String {
    if second.is_zero() {
        return String::new();
    }
    let percent = 100.0 * (first.as_secs_f64() / second.as_secs_f64() - 1.0);
    format!("{percent:+.1}%")
}
