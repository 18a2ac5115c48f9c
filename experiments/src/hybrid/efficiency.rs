//! Published scaling efficiencies: the throughput per GPU on n GPUs, divided by that on 16 GPUs.

/// Scaling efficiency of GNMT on V100s (NVIDIA, DGX-2H, MLPerf v0.7), relative to 16 GPUs, by
/// number of GPUs. Derived from the seconds and epochs of published runs, whose batches differ from
/// ours.
const GNMT: [(usize, f64); 3] = [(16, 1.0), (256, 0.461), (1024, 0.26)];
/// The same for ResNet-50.
const RESNET_50: [(usize, f64); 2] = [(16, 1.0), (512, 0.75)];

/// Returns the efficiency of training `model` on `gpus` V100s relative to 16, interpolated between
/// the logarithms of published values. `None` outside their range and for other networks.
pub(super) fn measured(model: &str, gpus: usize) -> Option<f64> {
    let rows: &[(usize, f64)] = match model {
        "gnmt" => &GNMT,
        "resnet-50" => &RESNET_50,
        _ => return None,
    };
    let pair = rows.windows(2).find(|pair| (pair[0].0..=pair[1].0).contains(&gpus))?;
    let [(low, from), (high, to)] = [pair[0], pair[1]];
    let part = (gpus as f64 / low as f64).ln() / (high as f64 / low as f64).ln();
    Some(from * (to / from).powf(part))
}

#[cfg(test)]
mod tests {
    use super::measured;

    #[test]
    fn measured_points_are_exact_and_others_are_interpolated() {
        assert_eq!(measured("gnmt", 256), Some(0.461));
        let between = measured("gnmt", 512).unwrap();
        assert!((between - (0.461_f64 * 0.26).sqrt()).abs() < 1e-12);
        assert_eq!((measured("gnmt", 2048), measured("vgg16", 64)), (None, None));
    }
}
