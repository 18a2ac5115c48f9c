//! Readers of traces: each accepts all of n records, or is refused with the line of the first
//! unusable one. Nothing is skipped.

use std::fs;
use std::path::Path;

use cluster_scheduler::{Error, trace};
use proptest::prelude::*;

/// A reader: its name, the header, a valid record, unusable records, and a function that returns
/// the number of accepted records.
struct Reader {
    name: &'static str,
    header: &'static str,
    valid: &'static str,
    unusable: &'static [&'static str],
    read: fn(&[u8]) -> Result<usize, Error>,
}

/// All readers of the module `trace`.
const READERS: [Reader; 5] = [
    Reader {
        name: "philly",
        header: "timestamp,duration,num_gpus",
        valid: "2017-10-06 00:00:00,60,1",
        unusable: &[
            "2017-02-30 00:00:00,60,1",
            "2017-04-31 00:00:00,60,1",
            "2017-02-29 00:00:00,60,1",
            "2017-13-01 00:00:00,60,1",
            "2017-10-00 00:00:00,60,1",
            "2017-10-06 24:00:00,60,1",
            "2017-10-06 23:60:00,60,1",
            "2017-10-06 00:00:00,0,1",
            "2017-10-06 00:00:00,NaN,1",
            "2017-10-06 00:00:00,60,-1",
            ",,",
        ],
        read: |text| Ok(trace::philly("f", text)?.len()),
    },
    Reader {
        name: "gavel_jobs",
        header: "arrival_s,model,batch,gpus,steps",
        valid: "0,LM,5,1,10",
        unusable: &["NaN,LM,5,1,10", "0,LM,5,0,10", "0,LM,5,1,-1", "1e300,LM,5,1,1"],
        read: |text| Ok(trace::gavel_jobs("f", text)?.len()),
    },
    Reader {
        name: "gavel_speeds",
        header: "gpu_type,model,batch,gpus,steps_per_s",
        valid: "v100,LM,5,1,2.5",
        unusable: &["v100,LM,5,1,inf", "v100,LM,5,x,1", "v100,LM,5"],
        read: |text| Ok(trace::gavel_speeds("f", text)?.len()),
    },
    Reader {
        name: "gavel_pairs",
        header: "gpus,model_a,batch_a,model_b,batch_b,a_alone,b_alone,a_shared,b_shared",
        valid: "1,LM,5,LM,10,3,2,1,1",
        unusable: &["1,LM,5,LM,10,0,2,1,1", "1,LM,5,LM,10,3,2,1,NaN", "0,LM,5,LM,10,3,2,1,1"],
        read: |text| Ok(trace::gavel_pairs("f", text)?.len()),
    },
    Reader {
        name: "pollux_steps",
        header: "model,kind,placement_or_nodes,replicas,local_batch,step_s,sync_s",
        valid: "bert,placement,12,3,8,1,0.5",
        unusable: &["bert,placement,12,4,8,1,0", "bert,other,1,1,8,1,0", "bert,placement,1,1,8,NaN,0"],
        read: |text| Ok(trace::pollux_steps("f", text)?.len()),
    },
];

/// Finds the readers in the source: the public functions with an `input`.
#[test]
fn every_reader_is_registered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/trace");
    let mut found = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let functions = text.split("\npub fn ").skip(1).filter_map(|function| function.split_once('('));
        let readers = functions.filter(|(_, rest)| rest.split('{').next().unwrap().contains("impl Read"));
        found.extend(readers.map(|(name, _)| name.to_owned()));
    }
    found.sort();
    let mut registered = READERS.map(|reader| reader.name);
    registered.sort_unstable();
    assert_eq!(found, registered);
}

proptest! {
    #[test]
    fn readers_accept_all_records_or_name_the_first_unusable_one(
        places in prop::collection::vec(prop::option::weighted(0.2, 0usize..11), 1..40)
    ) {
        for reader in &READERS {
            let record = |place: &Option<usize>| match place {
                Some(which) => reader.unusable[which % reader.unusable.len()],
                None => reader.valid,
            };
            let records: Vec<&str> = places.iter().map(record).collect();
            let text = format!("{}\n{}\n", reader.header, records.join("\n"));
            let first = places.iter().position(Option::is_some);
            match ((reader.read)(text.as_bytes()), first) {
                (Ok(accepted), None) => prop_assert_eq!(accepted, places.len(), "{}", reader.name),
                (Err(error), Some(first)) => {
                    let line = format!("f: line {},", first + 2);
                    prop_assert!(error.to_string().starts_with(&line), "{}: {error}", reader.name);
                }
                (result, first) => prop_assert!(false, "{}: {result:?}, first {first:?}", reader.name),
            }
        }
    }
}
