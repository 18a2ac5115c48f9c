use deeppool::program::*;
use layer_graph::zoo;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    for model in &args {
        let network = zoo::model(model).unwrap();
        let placement = Placement::single(&network).unwrap();
        let mut seen = Vec::new();
        for batch in [4, 36] {
            let t = std::time::Instant::now();
            let program =
                lower_for_simulation(&network, &placement, batch, &LowerOptions::default()).unwrap();
            let took = t.elapsed();
            let rank = &program.ranks[0];
            let m = rank.memory();
            let (step, ids) = rank.fullest_step();
            seen.push(m.total_bytes());
            println!(
                "{model} {batch}: total {:.1} MB unused {:.2}% arena {:.1} in {took:?}, buffers {} fullest {}",
                m.total_bytes() as f64 / 1e6,
                100.0 * m.unused_bytes as f64 / (rank.arena_elements as f64 * 4.0),
                rank.arena_elements as f64 * 4e-6,
                rank.buffers.len(),
                rank.steps[step.0].label
            );
            if batch == 36 {
                let mut ids = ids;
                ids.sort_by_key(|id| std::cmp::Reverse(rank.buffers[id.0].elements));
                let mut by: std::collections::BTreeMap<String, f64> = Default::default();
                for id in &ids {
                    let b = &rank.buffers[id.0];
                    let k = match b.contents {
                        Contents::Operand(l, r) => format!(
                            "{:?} {}",
                            r,
                            format!("{:?}", network.layer(l).kind())
                                .split(|c: char| !c.is_alphanumeric())
                                .next()
                                .unwrap()
                        ),
                        c => format!("{c:?}").split('(').next().unwrap().to_string(),
                    };
                    *by.entry(k).or_default() += b.elements as f64 * 4e-6 / 36.0;
                }
                let mut v: Vec<_> = by.into_iter().collect();
                v.sort_by(|a, b| b.1.total_cmp(&a.1));
                for (k, mb) in v.iter().take(9) {
                    println!("    {k}: {mb:.2} MB a sample");
                }
            }
        }
        println!("  {model}: slope {:.2} MB a sample", (seen[1] - seen[0]) as f64 / 32e6);
    }
}
