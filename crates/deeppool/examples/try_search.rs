use burst_planner::*;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::program::LowerOptions;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (model, gpus, batch) = (&args[1], args[2].parse::<usize>().unwrap(), args[3].parse::<usize>().unwrap());
    let link = args.get(4).map_or("dgx-a100", String::as_str);
    let effort = args.get(5).map_or(1.0, |s| s.parse().unwrap());
    let start = Instant::now();
    let network = layer_graph::zoo::model(model).unwrap();
    let mut sizes = shard_sizes(batch, gpus);
    sizes.extend((1..=gpus.min(batch)).map(|k| batch / k));
    sizes.sort_unstable(); sizes.dedup();
    let profile = layer_profile::DeviceModel::named("a100").unwrap().profile(&network, &sizes).unwrap();
    let link = collectives::LinkModel::named(link).unwrap();
    println!("profile {:?}", start.elapsed());
    let job = Job::new(Costs::new(&network, &profile, &link), batch, LowerOptions::default());
    let mut counts: Vec<usize> = vec![];
    for s in (1..=batch).rev() { let c = batch.div_ceil(s); if counts.last().is_none_or(|&l: &usize| c <= 8 && c > l || c as f64 >= 1.25 * l as f64) { counts.push(c); } }
    counts.sort_unstable(); counts.dedup();
    println!("counts {counts:?}");
    let problem = job.training_problem(gpus, &counts).unwrap();
    let costs = job.training_costs();
    let mut ev = Evaluator::new(&problem, &costs).unwrap();
    let dp = Arrangement::data_parallel(&problem, gpus.min(batch)).unwrap();
    let t = ev.evaluate(&dp).unwrap();
    let single = ev.single_gpu_us().unwrap();
    let s2 = Instant::now();
    for _ in 0..1000 { ev.evaluate(&dp).unwrap(); }
    println!("DP {:.3} ms amp {:.3}; single {:.2}; eval {:?}", t.iteration_us/1e3, t.gpu_time_us/single, single/1e3, s2.elapsed()/1000);
    let s2 = Instant::now();
    let mut options = TrainingSearch::default(); options.effort = effort;
    let f = search_training(&problem, &costs, &options).unwrap();
    println!("search {:?}, {} evaluations, {} points", s2.elapsed(), f.evaluations(), f.points().len());
    {
        let p = f.fastest_within(2.0).unwrap();
        let mut by: std::collections::BTreeMap<String, f64> = Default::default();
        for s in ev.path(&p.arrangement).unwrap() { *by.entry(format!("{:?}", s.kind)).or_default() += s.time_us; }
        println!("{by:?} total {:.1}", by.values().sum::<f64>());
        let act = ev.activity(&p.arrangement).unwrap();
        for a in &act { println!("{a:?}"); }
    }
    for limit in [1.05, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 8.0] {
        match f.fastest_within(limit) { Ok(p) => {
            let st = Instant::now(); let lb = f.lower_bound_us(limit);
            print!("limit {limit}: {:.3} ms amp {:.3} bound {:.3} gap {:.2}% ({:?}) ", p.time.iteration_us/1e3, p.time.gpu_time_us/single, lb/1e3, (p.time.iteration_us/lb-1.0)*100.0, st.elapsed());
            let a = &p.arrangement;
            let mut runs: Vec<(String, usize)> = vec![];
            for &n in &a.order { let r=&a.ranks[n]; let s = format!("{}+{}", r[0], r.len()); match runs.last_mut() { Some(l) if l.0==s => l.1+=1, _ => runs.push((s,1)) } }
            println!("{}", runs.iter().take(14).map(|(s,n)| format!("{n}x[{s}]")).collect::<Vec<_>>().join(" "));
        } Err(e) => println!("limit {limit}: {e}") }
    }
}
