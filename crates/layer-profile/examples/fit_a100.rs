//! Fits the device model of an A100 to the layer times published with DeepPool. Prints the errors
//! on stderr and the model on stdout:
//!
//! ```text
//! cargo run -p layer-profile --example fit_a100 -- FOLDER > a100.json
//! ```

#[path = "../tests/it/published.rs"]
mod published;

use layer_profile::{DataSheet, DeviceModel, ProfileError};

fn main() -> Result<(), ProfileError> {
    let folder = std::env::args().nth(1).map_or_else(published::folder, Into::into);
    let observations = published::observations(&folder);
    let (model, report) = DeviceModel::fit("a100", Some(&DataSheet::A100), &observations)?;
    for (label, networks) in [("fitted", &report.fitted), ("left out", &report.held_out)] {
        for errors in networks {
            let whole: Vec<_> =
                errors.whole.iter().map(|(batch, error)| format!("{batch}: {:+.1}", 100.0 * error)).collect();
            eprintln!("{:>12} {label}: layers {:.1}% median", errors.network, 100.0 * errors.median());
            eprintln!("    whole network, % by batch: {}", whole.join(", "));
        }
    }
    println!("{}", model.to_json()?);
    Ok(())
}
