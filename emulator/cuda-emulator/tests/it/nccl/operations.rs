//! Results of operations, on one thread and on several.

use super::{F32, Nccl, Rank, SUM, on_devices, ranks};
use crate::execution::{Gpu, shape};
use cudarc::{
    driver::{PushKernelArg, sys},
    nccl::sys::ncclUniqueId,
};
use std::{mem::MaybeUninit, thread, time::Duration};

/// Runs `call` for every rank in one group.
fn group(nccl: &Nccl, ranks: &[Rank], call: impl Fn(usize, &Rank) -> u32) {
    assert_eq!(nccl.ncclGroupStart(), 0);
    for (number, rank) in ranks.iter().enumerate() {
        assert_eq!(call(number, rank), 0, "{}", nccl.last_error());
    }
    assert_eq!(nccl.ncclGroupEnd(), 0, "{}", nccl.last_error());
}

#[test]
fn operations_match_a_serial_reference() {
    on_devices(|_, nccl| {
        for size in [1, 2, 3, 5, 8] {
            let ranks = ranks(nccl, size);
            for (number, rank) in ranks.iter().enumerate() {
                assert_eq!(Nccl::number(|place| nccl.ncclCommUserRank(rank.comm, place)), number as i32);
                assert_eq!(Nccl::number(|place| nccl.ncclCommCount(rank.comm, place)), size as i32);
                assert_eq!(Nccl::number(|place| nccl.ncclCommCuDevice(rank.comm, place)), number as i32);
            }
            // Each rank has `size` pairs (10 * rank + i, -1).
            let own = |rank: usize| -> Vec<f32> {
                (0..size).flat_map(|i| [(10 * rank + i) as f32, -1.0]).collect()
            };
            let all: Vec<Vec<f32>> = (0..size).map(own).collect();
            let over = |combine: fn(f32, f32) -> f32| -> Vec<f32> {
                (0..2 * size).map(|i| all.iter().map(|one| one[i]).reduce(combine).unwrap()).collect()
            };
            let run = |room: usize, call: &dyn Fn(&Rank, usize, u64, u64) -> u32| -> Vec<Vec<f32>> {
                let sent: Vec<_> = ranks.iter().zip(&all).map(|(rank, own)| rank.held(own)).collect();
                let got: Vec<_> = ranks.iter().map(|rank| rank.held(&vec![7.0; room])).collect();
                group(nccl, &ranks, |number, rank| {
                    call(rank, number, rank.address(&sent[number]), rank.address(&got[number]))
                });
                ranks.iter().zip(&got).map(|(rank, got)| rank.gpu.stream.clone_dtoh(got).unwrap()).collect()
            };
            let reductions: [fn(f32, f32) -> f32; 4] = [|a, b| a + b, |a, b| a * b, f32::max, f32::min];
            for (reduction, combine) in (0..).zip(reductions) {
                let found = run(2 * size, &|rank, _, send, receive| {
                    nccl.ncclAllReduce(send, receive, 2 * size, F32, reduction, rank.comm, rank.stream())
                });
                assert_eq!(found, vec![over(combine); size]);
            }
            let mean = run(2 * size, &|rank, _, send, receive| {
                nccl.ncclAllReduce(send, receive, 2 * size, F32, 4, rank.comm, rank.stream())
            });
            assert!((mean[0][0] - 5.0 * (size - 1) as f32).abs() < 1e-5, "{mean:?}");
            let root = size - 1;
            let found = run(2 * size, &|rank, _, send, receive| {
                nccl.ncclReduce(send, receive, 2 * size, F32, SUM, root as i32, rank.comm, rank.stream())
            });
            for (number, found) in found.iter().enumerate() {
                let expected = if number == root { over(|a, b| a + b) } else { vec![7.0; 2 * size] };
                assert_eq!(*found, expected);
            }
            let found = run(2 * size, &|rank, _, send, receive| {
                nccl.ncclBroadcast(send, receive, 2 * size, F32, root as i32, rank.comm, rank.stream())
            });
            assert_eq!(found, vec![all[root].clone(); size]);
            let found = run(2 * size * size, &|rank, _, send, receive| {
                nccl.ncclAllGather(send, receive, 2 * size, F32, rank.comm, rank.stream())
            });
            assert_eq!(found, vec![all.concat(); size]);
            let found = run(2, &|rank, _, send, receive| {
                nccl.ncclReduceScatter(send, receive, 2, F32, SUM, rank.comm, rank.stream())
            });
            assert_eq!(found.concat(), over(|a, b| a + b));
            // Send around the ring. A single rank sends to itself.
            let found = run(2 * size, &|rank, number, send, receive| {
                let (next, last) = ((number + 1) % size, (number + size - 1) % size);
                let sent = nccl.ncclSend(send, 2 * size, F32, next as i32, rank.comm, rank.stream());
                sent.max(nccl.ncclRecv(receive, 2 * size, F32, last as i32, rank.comm, rank.stream()))
            });
            for (number, found) in found.iter().enumerate() {
                assert_eq!(*found, all[(number + size - 1) % size]);
            }
            for rank in ranks {
                assert_eq!(nccl.ncclCommDestroy(rank.comm), 0);
            }
        }
    });
}

#[test]
fn reductions_follow_the_element_type() {
    on_devices(|_, nccl| {
        let reduced = |element: u32, reduction: u32, inputs: &[Vec<u8>], count: usize| -> Vec<u8> {
            let ranks = ranks(nccl, inputs.len());
            let held: Vec<_> = ranks.iter().zip(inputs).map(|(rank, own)| rank.held(own)).collect();
            group(nccl, &ranks, |number, rank| {
                let address = rank.address(&held[number]);
                nccl.ncclAllReduce(address, address, count, element, reduction, rank.comm, rank.stream())
            });
            let result = ranks[0].gpu.stream.clone_dtoh(&held[0]).unwrap();
            for rank in &ranks {
                assert_eq!(nccl.ncclCommDestroy(rank.comm), 0);
            }
            result
        };
        let bytes = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let inputs = [bytes(&[1, -5, i32::MAX]), bytes(&[3, 9, 1])];
        let expected =
            [[4, 4, i32::MIN], [3, -45, i32::MAX], [3, 9, i32::MAX], [1, -5, 1], [2, 2, i32::MIN / 2]];
        for (reduction, expected) in (0..).zip(&expected) {
            assert_eq!(reduced(2, reduction, &inputs, 3), bytes(expected), "{reduction}");
        }
        // In half precision, 2048 + 1 + 1 would be 2048.
        let halves = [0x6800_u16, 0x3c00, 0x3c00].map(|bits| bits.to_le_bytes().to_vec());
        assert_eq!(reduced(6, SUM, &halves, 1), 0x6801_u16.to_le_bytes());
        // 200 is negative as a signed byte.
        let unsigned = [vec![200_u8], vec![100]];
        assert_eq!((reduced(1, 2, &unsigned, 1), reduced(0, 2, &unsigned, 1)), (vec![200], vec![100]));
    });
}

#[test]
fn ranks_on_threads_mix_kernels_and_collectives_in_stream_order() {
    on_devices(|_, nccl| {
        let size = 4;
        let mut id = MaybeUninit::<ncclUniqueId>::uninit();
        assert_eq!(nccl.ncclGetUniqueId(id.as_mut_ptr()), 0);
        // SAFETY: the call has initialised it.
        let id = unsafe { id.assume_init() };
        thread::scope(|scope| {
            for number in 0..size {
                scope.spawn(move || {
                    let gpu = Gpu::new(number);
                    let mut comm = 0;
                    let started = nccl.ncclCommInitRank(&raw mut comm, size as i32, id, number as i32);
                    assert_eq!(started, 0, "it returns when all have come");
                    let rank = Rank { gpu, comm };
                    let kernel = rank.gpu.kernel("scale");
                    let mut held = rank.held(&[number as f32; 32]);
                    for _ in 0..3 {
                        rank.scale(&kernel, &mut held, 2.0);
                        assert_eq!(rank.all_reduce(nccl, &held), 0);
                    }
                    rank.scale(&kernel, &mut held, 0.5);
                    // The first sum is 2 * (0 + 1 + 2 + 3). Each further round multiplies by 2 and
                    // by 4 ranks.
                    assert_eq!(rank.gpu.stream.clone_dtoh(&held).unwrap(), [6.0 * 2.0 * 8.0 * 8.0 / 2.0; 32]);

                    let mut half = 0;
                    let split = nccl.ncclCommSplit(
                        comm,
                        (number % 2) as i32,
                        -(number as i32),
                        &raw mut half,
                        std::ptr::null(),
                    );
                    assert_eq!(split, 0);
                    let place = Nccl::number(|place| nccl.ncclCommUserRank(half, place));
                    assert_eq!(place, i32::from(number < 2), "by the key");
                    let rank = Rank { comm: half, ..rank };
                    let held = rank.held(&[number as f32]);
                    assert_eq!(rank.all_reduce(nccl, &held), 0);
                    assert_eq!(
                        rank.gpu.stream.clone_dtoh(&held).unwrap(),
                        [if number % 2 == 0 { 2.0 } else { 4.0 }]
                    );
                    assert_eq!(nccl.ncclCommDestroy(half), 0);
                    assert_eq!(nccl.ncclCommDestroy(comm), 0);
                });
            }
        });
    });
}

/// A collective starts when its last rank has come and ends after its duration. A kernel of
/// duration 0 does not wait for the device.
#[test]
fn set_launch_time_applies_to_the_calling_thread() {
    on_devices(|emulator, nccl| {
        let us = Duration::from_micros;
        let ranks = ranks(nccl, 2);
        let mut held: Vec<_> = ranks.iter().map(|rank| rank.held(&[1.0_f32; 4])).collect();
        let kernel = ranks[1].gpu.kernel("scale");
        let beside = ranks[1].gpu.stream.context().new_stream().unwrap();
        let mut other = beside.clone_htod(&[3.0_f32; 4]).unwrap();
        for rank in &ranks {
            rank.gpu.stream.synchronize().unwrap();
        }
        beside.synchronize().unwrap();
        emulator.set_launch_time(Some(us(100)));
        ranks[1].scale(&kernel, &mut held[1], 3.0);
        emulator.set_launch_time(Some(Duration::ZERO));
        // SAFETY: the arguments match the parameters.
        unsafe {
            beside.launch_builder(&kernel).arg(&mut other).arg(&2.0_f32).arg(&4_u32).launch(shape(1, 32, 0))
        }
        .unwrap();
        emulator.set_launch_time(Some(us(50)));
        group(nccl, &ranks, |number, rank| rank.all_reduce(nccl, &held[number]));
        emulator.set_launch_time(None);
        let began = emulator.now();
        beside.synchronize().unwrap();
        assert_eq!(emulator.now().saturating_sub(began), us(0));
        ranks[0].gpu.stream.synchronize().unwrap();
        assert_eq!(emulator.now().saturating_sub(began), us(150));
        ranks[1].gpu.stream.synchronize().unwrap();
        assert_eq!(emulator.now().saturating_sub(began), us(150));
        assert_eq!(ranks[0].gpu.stream.clone_dtoh(&held[0]).unwrap(), [4.0; 4]);
        drop((held, other));
        for rank in ranks {
            assert_eq!(nccl.ncclCommDestroy(rank.comm), 0);
        }
    });
}

#[test]
fn captured_operations_run_at_each_launch() {
    on_devices(|_, nccl| {
        let ranks = ranks(nccl, 2);
        let held: Vec<_> = ranks.iter().map(|rank| rank.held(&[1.0_f32, 2.0])).collect();
        let graphs: Vec<_> = ranks
            .iter()
            .zip(&held)
            .map(|(rank, held)| {
                rank.gpu
                    .stream
                    .begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
                    .unwrap();
                assert_eq!(rank.all_reduce(nccl, held), 0);
                let flags =
                    sys::CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
                rank.gpu.stream.end_capture(flags).unwrap().unwrap()
            })
            .collect();
        for factor in [2.0, 4.0, 8.0] {
            for graph in &graphs {
                graph.launch().unwrap();
            }
            for (rank, held) in ranks.iter().zip(&held) {
                assert_eq!(rank.gpu.stream.clone_dtoh(held).unwrap(), [factor, 2.0 * factor]);
            }
        }
        drop((graphs, held));
        for rank in ranks {
            assert_eq!(nccl.ncclCommDestroy(rank.comm), 0);
        }
    });
}
