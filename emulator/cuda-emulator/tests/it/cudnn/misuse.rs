//! Misuse of cuDNN, injected errors and leaks.

use super::{CONVOLUTION, Cudnn, F32, PLAN, SHAPE, VARIANT_PACK, Value, results::Gpu, strides};
use cuda_emulator::Setting;
use std::{
    ptr, thread,
    time::{Duration, Instant},
};

/// A plan with memory for its tensors and workspace.
struct Prepared {
    gpu: Gpu,
    plan: usize,
    tensors: [u64; 3],
    workspace: u64,
    workspace_bytes: usize,
}

impl Prepared {
    /// Prepares an engine that needs a workspace.
    fn start() -> Self {
        let gpu = Gpu::start();
        let all = SHAPE.dimensions().map(|dimensions| strides(dimensions, false));
        let graph = gpu.cudnn.graph(&SHAPE, 0, F32, all, [1.0, 0.0]);
        let (plan, _, workspace_bytes) = gpu.plan(graph, |index, _| index == 46);
        gpu.cudnn.destroy(&[graph]);
        let tensors = SHAPE
            .dimensions()
            .map(|dimensions| gpu.memory(&vec![0; 4 * dimensions.iter().product::<i64>() as usize]));
        let workspace = gpu.memory(&vec![0; workspace_bytes]);
        Self { gpu, plan, tensors, workspace, workspace_bytes }
    }

    fn execute(&self, ids: &[i64], addresses: &[u64], workspace: u64) -> u32 {
        let cudnn = &self.gpu.cudnn;
        let pack = cudnn.made(
            VARIANT_PACK,
            &[
                (1000, Value::Int64(ids)),
                (1001, Value::Pointers(addresses)),
                (1003, Value::Pointers(&[workspace])),
            ],
        );
        let status = cudnn.cudnnBackendExecute(self.gpu.handle, self.plan, pack);
        cudnn.destroy(&[pack]);
        status
    }

    /// Checks that the last call returned `expected` and was reported with `why`.
    #[track_caller]
    fn refuses(&self, status: u32, expected: u32, why: &str) {
        let misuse = self.gpu.cuda.emulator.misuse();
        let last = misuse.last().map_or("", String::as_str);
        assert!(last.contains(why), "{last:?} instead of {why:?}");
        assert_eq!(status, expected, "{last}");
    }
}

#[test]
fn wrong_addresses_are_reported_by_tensor() {
    let prepared = Prepared::start();
    let ([x, w, y], room) = (prepared.tensors, prepared.workspace);
    let ids = [1, 2, 3];
    assert_eq!(prepared.execute(&ids, &[x, w, y], room), 0);
    let refuses = |ids: &[i64], addresses: &[u64], workspace, status, why: &str| {
        prepared.refuses(prepared.execute(ids, addresses, workspace), status, why);
    };
    refuses(&ids[..2], &[x, w], room, 2000, "tensor 3 (output) has no address");
    refuses(&[1, 2, 3, 4], &[x, w, y, y], room, 2000, "the plan has no tensor 4");
    refuses(&[1, 2, 3, 3], &[x, w, y, y], room, 2009, "tensor 3 has two addresses");
    refuses(&ids, &[0, w, y], room, 2002, "tensor 1 (input) is at null");
    refuses(&ids, &[x, w + 4, y], room, 2003, "tensor 2 (filter) at");
    refuses(&ids, &[x, w, y + 16], room, 2000, "an output of kernel cudnn_forward_engine_46");
    refuses(&ids, &[x, w, y], 0, 2002, "no workspace, of which the plan needs");
    refuses(&ids, &[x, w, y], room + 4, 2003, "the workspace at");
    refuses(&ids, &[x, w, y], room + 256, 2000, "the workspace of kernel cudnn_forward_engine_46");
    refuses(&ids, &[x, w, y], y, 2000, "the workspace");
    assert!(prepared.workspace_bytes > 256);
}

#[test]
fn wrong_objects_are_reported() {
    let prepared = Prepared::start();
    let Prepared { gpu, plan, .. } = &prepared;
    let cudnn = &gpu.cudnn;
    let pack = gpu.pack(prepared.tensors, prepared.workspace);
    let execute = |handle, plan, pack| cudnn.cudnnBackendExecute(handle, plan, pack);
    let unfinished = cudnn.create(PLAN);
    prepared.refuses(execute(gpu.handle, unfinished, pack), 2004, "is no finalised execution plan");
    prepared.refuses(execute(gpu.handle, pack, pack), 2004, "(variant pack) is no finalised execution plan");
    prepared.refuses(execute(gpu.handle, *plan, *plan), 2004, "is no finalised variant pack");
    prepared.refuses(execute(gpu.stream, *plan, pack), 2000, "instead of a handle of kind cuDNN handle");
    let status = cudnn.set(unfinished, 401, Value::Object(pack));
    prepared.refuses(status, 2012, "attribute 401 cannot be cuDNN descriptor");
    cudnn.destroy(&[pack]);
    prepared.refuses(execute(gpu.handle, *plan, pack), 2000, "after it was destroyed");
    prepared.refuses(cudnn.cudnnBackendCreateDescriptor(23, &mut 0), 3000, "kind 23 are not emulated");
    gpu.cuda.ok(cudnn.cudnnDestroy(gpu.handle));
    prepared.refuses(
        cudnn.cudnnSetStream(gpu.handle, gpu.stream),
        2000,
        "cuDNN handle 1 after it was destroyed",
    );
}

#[test]
fn devices_and_contexts_must_agree() {
    let prepared = Prepared::start();
    let Prepared { gpu: Gpu { cuda, cudnn, handle, stream }, .. } = &prepared;
    cuda.emulator.set(Setting::Devices, 2);
    let other = cuda.make(|place| cuda.cuDevicePrimaryCtxRetain(place, 1));
    let mut first = 0;
    cuda.ok(cuda.cuCtxGetCurrent(&raw mut first));
    cuda.ok(cuda.cuCtxSetCurrent(other));
    let foreign = cuda.stream(0);
    prepared.refuses(cudnn.cudnnSetStream(*handle, foreign), 2007, "for cuDNN handle 1 of context 1");
    let pack = prepared.gpu.pack(prepared.tensors, prepared.workspace);
    let execute = |plan| cudnn.cudnnBackendExecute(*handle, plan, pack);
    prepared.refuses(execute(prepared.plan), 2000, "of another context than the current one");
    let second = cuda.make(|place| cudnn.cudnnCreate(place));
    let device = cudnn.made(super::DEVICE, &[(2700, Value::Int32(super::INT32, &[1]))]);
    let configuration = cudnn.objects(prepared.plan, 401, super::CONFIGURATION)[0];
    let plan = cudnn.made(PLAN, &[(401, Value::Object(configuration)), (407, Value::Object(device))]);
    cuda.ok(cuda.cuCtxSetCurrent(first));
    cuda.ok(cudnn.cudnnSetStream(*handle, *stream));
    prepared.refuses(execute(plan), 2000, "(execution plan) of device 1 on device 0");
    cuda.ok(cudnn.cudnnDestroy(second));
}

#[test]
fn captures_are_checked() {
    let prepared = Prepared::start();
    let Prepared { gpu, tensors, workspace, .. } = &prepared;
    let cuda = &gpu.cuda;
    cuda.ok(cuda.cuStreamBeginCapture_v2(gpu.stream, 2));
    prepared.refuses(
        gpu.cudnn.cudnnCreate(&mut 0),
        5001,
        "creates a cuDNN handle during the capture of stream 1",
    );
    let status = prepared.execute(&[1, 2, 3], tensors, *workspace);
    prepared.refuses(status, 0, "(execution plan) is in a capture");
    let reports = cuda.emulator.misuse().len();
    assert_eq!(prepared.execute(&[1, 2, 3], tensors, *workspace), 0);
    assert_eq!(cuda.emulator.misuse().len(), reports, "the second execution is not reported");
    let graph = cuda.make(|place| cuda.cuStreamEndCapture(gpu.stream, place));
    assert_eq!(cuda.nodes(graph).len(), 2);
}

#[test]
fn streams_of_green_contexts_are_accepted() {
    let gpu = Gpu::start();
    let cuda = &gpu.cuda;
    let mut resource = cuda.make(|place| cuda.cuDeviceGetDevResource(0, place, 1));
    let description = cuda.make(|place| cuda.cuDevResourceGenerateDesc(place, &raw mut resource, 1));
    let green = cuda.make(|place| cuda.cuGreenCtxCreate(place, description, 0, 1));
    let stream = cuda.make(|place| cuda.cuGreenCtxStreamCreate(place, green, 1, 0));
    cuda.ok(gpu.cudnn.cudnnSetStream(gpu.handle, stream));
    cuda.ok(cuda.cuStreamDestroy_v2(stream));
    cuda.ok(cuda.cuGreenCtxDestroy(green));
    gpu.end();
}

#[test]
fn handles_of_two_threads_are_reported() {
    let gpu = Gpu::start();
    let end = Instant::now() + Duration::from_secs(20);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut stream = 0;
                while gpu.cuda.emulator.misuse().is_empty() && Instant::now() < end {
                    for _ in 0..1000 {
                        assert_eq!(gpu.cudnn.cudnnGetStream(gpu.handle, &raw mut stream), 0);
                    }
                }
            });
        }
    });
    assert_eq!(
        gpu.cuda.emulator.misuse()[0],
        "cudnnGetStream: cuDNN handle 1 is used by two threads at once"
    );
}

#[test]
fn handles_and_descriptors_leak() {
    let gpu = Gpu::start();
    let descriptor = gpu.cudnn.create(CONVOLUTION);
    let leaks = gpu.cuda.emulator.leaks();
    assert!(leaks.contains(&"cuDNN handle 1".to_owned()), "{leaks:?}");
    assert!(leaks.contains(&"cuDNN descriptor 1 (convolution)".to_owned()), "{leaks:?}");
    gpu.cudnn.destroy(&[descriptor]);
    gpu.end();
}

#[test]
fn each_call_can_fail() {
    let gpu = Gpu::start();
    let emulator = &gpu.cuda.emulator;
    let cudnn = &gpu.cudnn;
    let descriptor = cudnn.create(CONVOLUTION);
    let mut place = 0;
    let out = &raw mut place;
    let calls: [&dyn Fn(&Cudnn) -> u32; 10] = [
        &|cudnn| cudnn.cudnnCreate(out),
        &|cudnn| cudnn.cudnnSetStream(gpu.handle, gpu.stream),
        &|cudnn| cudnn.cudnnGetStream(gpu.handle, out),
        &|cudnn| cudnn.cudnnBackendCreateDescriptor(CONVOLUTION, out),
        &|cudnn| cudnn.set(descriptor, 106, Value::Int64(&[2])),
        &|cudnn| cudnn.cudnnBackendGetAttribute(descriptor, 106, 3, 0, ptr::null_mut(), ptr::null_mut()),
        &|cudnn| cudnn.cudnnBackendFinalize(descriptor),
        &|cudnn| cudnn.cudnnBackendExecute(gpu.handle, descriptor, descriptor),
        &|cudnn| cudnn.cudnnBackendDestroyDescriptor(descriptor),
        &|cudnn| cudnn.cudnnDestroy(gpu.handle),
    ];
    for call in calls {
        emulator.fail_call(emulator.calls() + 1, 2);
        assert_eq!(call(cudnn), 4004, "out of memory");
    }
    assert_eq!(emulator.misuse(), Vec::<String>::new());
    assert_eq!(
        emulator.leaks(),
        ["stream 1", "primary context of device 0: retained 1 times more than released"]
    );
    gpu.cuda.ok(gpu.cuda.cuStreamDestroy_v2(gpu.stream));
    gpu.cuda.end();
}
