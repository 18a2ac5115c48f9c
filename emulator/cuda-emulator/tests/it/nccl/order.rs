//! Order check of collectives.

use super::{F32, Nccl, Rank, SUM, on_devices, ranks};
use cuda_emulator::{Emulator, Setting};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, PushKernelArg, result};
use std::sync::Arc;

use crate::execution::shape;

/// Makes one stream wait for the work enqueued in another one so far.
fn after(later: &Arc<CudaStream>, earlier: &Arc<CudaStream>) {
    later.wait(&earlier.record_event(None).unwrap()).unwrap();
}

/// Doubles the elements with a kernel in the given stream.
fn double(kernel: &CudaFunction, stream: &Arc<CudaStream>, held: &mut CudaSlice<f32>) {
    let (count, factor) = (held.len() as u32, 2.0_f32);
    // SAFETY: the arguments match the parameters.
    unsafe { stream.launch_builder(kernel).arg(held).arg(&factor).arg(&count).launch(shape(1, 32, 0)) }
        .unwrap();
}

/// Runs a test with two ranks and the order check.
fn on_two_ranks(test: impl Fn(&Emulator, &Nccl, &[Rank])) {
    on_devices(|emulator, nccl| {
        emulator.set(Setting::OrderCheck, 1);
        let ranks = ranks(nccl, 2);
        test(emulator, nccl, &ranks);
        for rank in &ranks {
            rank.gpu.context.synchronize().unwrap();
            assert_eq!(nccl.ncclCommDestroy(rank.comm), 0);
        }
    });
}

/// Kernels in one stream of each rank and collectives in another, as in training.
#[test]
fn missing_order_between_kernels_and_collectives_is_found() {
    on_two_ranks(|emulator, nccl, ranks| {
        for left_out in [None, Some("before"), Some("after")] {
            let found_before = emulator.conflicts().len();
            let edge = |name: &str, rank: usize| left_out != Some(name) || rank != 1;
            let held = |rank: &Rank| rank.held(&[1.0_f32, 2.0]);
            let (mut all, kernels): (Vec<_>, Vec<_>) =
                ranks.iter().map(|rank| (held(rank), rank.gpu.kernel("scale"))).unzip();
            let compute: Vec<_> = ranks.iter().map(|rank| rank.gpu.context.new_stream().unwrap()).collect();
            for (index, rank) in ranks.iter().enumerate() {
                after(&compute[index], &rank.gpu.stream);
                double(&kernels[index], &compute[index], &mut all[index]);
                if edge("before", index) {
                    after(&rank.gpu.stream, &compute[index]);
                }
            }
            assert_eq!(nccl.ncclGroupStart(), 0);
            ranks.iter().zip(&all).for_each(|(rank, held)| assert_eq!(rank.all_reduce(nccl, held), 0));
            assert_eq!(nccl.ncclGroupEnd(), 0);
            for (index, rank) in ranks.iter().enumerate() {
                if edge("after", index) {
                    after(&compute[index], &rank.gpu.stream);
                }
                double(&kernels[index], &compute[index], &mut all[index]);
            }
            for rank in ranks {
                rank.gpu.context.synchronize().unwrap();
            }
            let found = emulator.conflicts().split_off(found_before);
            if left_out.is_none() {
                assert!(found.is_empty(), "{found:?}");
                continue;
            }
            let names =
                ["kernel scale in stream", "ncclAllReduce by rank 1 of NCCL communicator 1 in stream"];
            assert!(!found.is_empty());
            for line in found {
                let both = names.iter().all(|name| line.contains(name));
                assert!(both && line.contains("of device 1") && !line.contains("of device 0"), "{line}");
            }
        }
    });
}

/// A rank is ordered after the ranks that sent it data, and after no others.
#[test]
fn ranks_are_ordered_after_the_senders_of_their_data() {
    type Call<'n> = &'n dyn Fn(&Nccl, usize, &Rank, u64) -> u32;
    let all_reduce: Call<'_> =
        &|nccl, _, rank, word| nccl.ncclAllReduce(word, word, 1, F32, SUM, rank.comm, rank.stream());
    let from = |root: i32| {
        move |nccl: &Nccl, _: usize, rank: &Rank, word: u64| {
            nccl.ncclBroadcast(word, word, 1, F32, root, rank.comm, rank.stream())
        }
    };
    let to = |root: i32| {
        move |nccl: &Nccl, _: usize, rank: &Rank, word: u64| {
            nccl.ncclReduce(word, word, 1, F32, SUM, root, rank.comm, rank.stream())
        }
    };
    let message = |sender: usize| {
        move |nccl: &Nccl, number: usize, rank: &Rank, word: u64| {
            if number == sender {
                nccl.ncclSend(word, 1, F32, 1 - sender as i32, rank.comm, rank.stream())
            } else {
                nccl.ncclRecv(word, 1, F32, sender as i32, rank.comm, rank.stream())
            }
        }
    };
    let calls: [(Call<'_>, bool); 7] = [
        (all_reduce, true),
        (&from(0), true),
        (&from(1), false),
        (&to(1), true),
        (&to(0), false),
        (&message(0), true),
        (&message(1), false),
    ];
    on_two_ranks(|emulator, nccl, ranks| {
        for (call, is_ordered) in calls {
            let found_before = emulator.conflicts().len();
            // Rank 0 computes values, and after the operation rank 1 copies them.
            let mut made = ranks[0].held(&[1.0_f32, 2.0]);
            let kernel = ranks[0].gpu.kernel("scale");
            double(&kernel, &ranks[0].gpu.stream, &mut made);
            let words: Vec<_> = ranks.iter().map(|rank| rank.held(&[1.0_f32])).collect();
            assert_eq!(nccl.ncclGroupStart(), 0);
            for (number, rank) in ranks.iter().enumerate() {
                assert_eq!(call(nccl, number, rank, rank.address(&words[number])), 0);
            }
            assert_eq!(nccl.ncclGroupEnd(), 0);
            let copied = ranks[1].held(&[0.0_f32, 0.0]);
            let contexts = ranks.iter().map(|rank| rank.gpu.context.cu_ctx()).collect::<Vec<_>>();
            let (to, from) = (ranks[1].address(&copied), ranks[0].address(&made));
            let stream = ranks[1].gpu.stream.cu_stream();
            // SAFETY: both allocations have 8 bytes.
            unsafe { result::memcpy_peer_async(contexts[1], to, contexts[0], from, 8, stream) }.unwrap();
            for rank in ranks {
                rank.gpu.context.synchronize().unwrap();
            }
            let found = emulator.conflicts().split_off(found_before);
            assert_eq!(found.is_empty(), is_ordered, "{found:?}");
        }
    });
}
