//! Lists the slowest layers of Inception-V3 on a modelled A100.

use std::error::Error;

use layer_graph::zoo;
use layer_profile::{DeviceModel, LayerTime, Origin};

fn main() -> Result<(), Box<dyn Error>> {
    let network = zoo::model("inception-v3")?;
    let table = DeviceModel::named("a100")?.profile(&network, &[1, 8, 32])?;
    assert_eq!(table.origin(), Origin::Modelled);

    let names = network.computing_layers().map(|(_, layer)| layer.name());
    let times: Result<Vec<(&str, LayerTime)>, _> =
        names.map(|name| table.time(name, 16).map(|time| (name, time))).collect();
    let mut times = times?;
    times.sort_by_key(|(_, time)| std::cmp::Reverse(time.total()));
    for (name, time) in &times[..5] {
        println!("{name:20} forward {:?}, backward {:?}", time.forward, time.backward);
    }
    assert!(table.time(times[0].0, 32)?.total() > times[0].1.total());
    assert!(table.time(times[0].0, 64).is_err(), "times are not extrapolated beyond 32 samples");
    Ok(())
}
