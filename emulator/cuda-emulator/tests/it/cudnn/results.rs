//! Results of convolutions, beside a computation in `f64`.

use super::{
    BF16, Cudnn, F16, F32, NONDETERMINISTIC, PLAN, RESULTS, Shape, TENSOR_CORE, VARIANT_PACK, Value, strides,
};
use crate::rules::cuda::Cuda;
use half::{bf16, f16};
use proptest::prelude::*;

/// A convolution on an emulated device.
pub(super) struct Gpu {
    pub(super) cuda: Cuda,
    pub(super) cudnn: Cudnn,
    pub(super) handle: usize,
    pub(super) stream: usize,
}

impl Gpu {
    pub(super) fn start() -> Self {
        let (cuda, cudnn) = (Cuda::start(), Cudnn::emulated());
        let handle = cuda.make(|place| cudnn.cudnnCreate(place));
        let stream = cuda.stream(0);
        cuda.ok(cudnn.cudnnSetStream(handle, stream));
        assert_eq!(cuda.make(|place| cudnn.cudnnGetStream(handle, place)), stream);
        Self { cuda, cudnn, handle, stream }
    }

    pub(super) fn end(self) {
        self.cuda.ok(self.cudnn.cudnnDestroy(self.handle));
        self.cuda.ok(self.cuda.cuStreamDestroy_v2(self.stream));
        self.cuda.end();
    }

    pub(super) fn memory(&self, bytes: &[u8]) -> u64 {
        let address = self.cuda.make(|place| self.cuda.cuMemAlloc_v2(place, bytes.len()));
        self.cuda.ok(self.cuda.cuMemcpyHtoDAsync_v2(address, bytes.as_ptr(), bytes.len(), self.stream));
        address
    }

    fn free(&self, addresses: &[u64]) {
        for address in addresses {
            self.cuda.ok(self.cuda.cuMemFree_v2(*address));
        }
    }

    pub(super) fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.cuda.ok(self.cuda.cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr(), address, length, self.stream));
        self.cuda.ok(self.cuda.cuStreamSynchronize(self.stream));
        bytes
    }

    /// Returns a plan for the first engine that `wanted` accepts, with its number and workspace.
    pub(super) fn plan(&self, graph: usize, wanted: impl Fn(i64, &[i32]) -> bool) -> (usize, i64, usize) {
        let cudnn = &self.cudnn;
        let configurations = cudnn.proposed(graph, 3, None);
        let engine = |configuration: &usize| cudnn.described(*configuration);
        let configuration = configurations
            .iter()
            .find(|configuration| {
                let (index, notes) = engine(configuration);
                wanted(index, &notes)
            })
            .expect("an engine");
        let plan = cudnn.made(PLAN, &[(401, Value::Object(*configuration))]);
        let (index, _) = engine(configuration);
        let workspace = cudnn.get::<i64, 1>(plan, 402, super::INT64)[0] as usize;
        cudnn.destroy(&configurations);
        (plan, index, workspace)
    }

    pub(super) fn pack(&self, tensors: [u64; 3], workspace: u64) -> usize {
        self.cudnn.made(
            VARIANT_PACK,
            &[
                (1000, Value::Int64(&[1, 2, 3])),
                (1001, Value::Pointers(&tensors)),
                (1003, Value::Pointers(&[workspace])),
            ],
        )
    }
}

/// Contents of the gaps between elements.
const GAP: u8 = 0xa5;

/// Layout of all tensors.
#[derive(Clone, Copy, Debug)]
pub(super) enum Layout {
    ChannelsSecond,
    ChannelsLast,
    /// Channels second, with a gap after each element.
    Gaps,
}

/// A convolution with its tensors.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) shape: Shape,
    pub(super) pass: usize,
    pub(super) data_type: i32,
    pub(super) layout: Layout,
    pub(super) factors: [f32; 2],
    pub(super) seed: u32,
}

impl Case {
    fn bytes_each(&self) -> usize {
        if self.data_type == F32 { 4 } else { 2 }
    }

    /// Returns the bytes of the nearest element.
    fn encode(&self, value: f32) -> Vec<u8> {
        match self.data_type {
            F32 => value.to_le_bytes().to_vec(),
            F16 => f16::from_f32(value).to_le_bytes().to_vec(),
            _ => bf16::from_f32(value).to_le_bytes().to_vec(),
        }
    }

    fn decode(&self, bytes: &[u8]) -> f32 {
        match *bytes {
            [a, b] if self.data_type == F16 => f16::from_le_bytes([a, b]).to_f32(),
            [a, b] => bf16::from_le_bytes([a, b]).to_f32(),
            _ => f32::from_le_bytes(bytes.try_into().unwrap()),
        }
    }

    pub(super) fn strides(&self) -> [[i64; 4]; 3] {
        let scale = if matches!(self.layout, Layout::Gaps) { 2 } else { 1 };
        let channels_last = matches!(self.layout, Layout::ChannelsLast);
        self.shape
            .dimensions()
            .map(|dimensions| strides(dimensions, channels_last).map(|stride| stride * scale))
    }

    /// Returns the values of input, filter and output in the order of their dimensions, rounded to
    /// the data type.
    fn values(&self) -> [Vec<f32>; 3] {
        let mut state = self.seed;
        self.shape.dimensions().map(|dimensions| {
            let next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let value = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
                self.decode(&self.encode(value))
            };
            std::iter::repeat_with(next).take(dimensions.iter().product::<i64>() as usize).collect()
        })
    }

    /// Returns the offset of each element in the order of the dimensions.
    fn offsets(&self, tensor: usize) -> Vec<usize> {
        let ([a, b, c, d], strides) = (self.shape.dimensions()[tensor], self.strides()[tensor]);
        let mut offsets = Vec::new();
        for (i, j) in (0..a).flat_map(|i| (0..b).map(move |j| (i, j))) {
            for (k, l) in (0..c).flat_map(|k| (0..d).map(move |l| (k, l))) {
                offsets.push((i * strides[0] + j * strides[1] + k * strides[2] + l * strides[3]) as usize);
            }
        }
        offsets
    }

    pub(super) fn bytes(&self, tensor: usize) -> Vec<u8> {
        let values = &self.values()[tensor];
        let last = self.offsets(tensor).into_iter().max().unwrap();
        let mut bytes = vec![GAP; (last + 1) * self.bytes_each()];
        for (offset, value) in self.offsets(tensor).into_iter().zip(values) {
            let place = offset * self.bytes_each();
            bytes[place..place + self.bytes_each()].copy_from_slice(&self.encode(*value));
        }
        bytes
    }

    fn decoded(&self, tensor: usize, bytes: &[u8]) -> Vec<f64> {
        let size = self.bytes_each();
        let decode = |offset: usize| f64::from(self.decode(&bytes[offset * size..(offset + 1) * size]));
        self.offsets(tensor).into_iter().map(decode).collect()
    }

    /// Computes the result in `f64`.
    fn expected(&self) -> Vec<f64> {
        let Shape { stride, padding, dilation, .. } = self.shape;
        let [[n, c, h, w], [k, depth, r, s], [_, _, p, q]] = self.shape.dimensions();
        let values = self.values().map(|values| values.into_iter().map(f64::from).collect::<Vec<_>>());
        let result = RESULTS[self.pass];
        let mut sums = vec![0.0; values[result].len()];
        let group = k / self.shape.groups;
        for (sample, filter, channel) in
            (0..n).flat_map(|a| (0..k).flat_map(move |b| (0..depth).map(move |c| (a, b, c))))
        {
            for (row, column, line, place) in (0..r).flat_map(|a| {
                (0..s).flat_map(move |b| (0..p).flat_map(move |c| (0..q).map(move |d| (a, b, c, d))))
            }) {
                let (y, x) = (
                    line * stride + row * dilation - padding[0],
                    place * stride + column * dilation - padding[1],
                );
                if !(0..h).contains(&y) || !(0..w).contains(&x) {
                    continue;
                }
                let input = (((sample * c + filter / group * depth + channel) * h + y) * w + x) as usize;
                let (row, column) =
                    if self.shape.flipped { (r - 1 - row, s - 1 - column) } else { (row, column) };
                let weight = (((filter * depth + channel) * r + row) * s + column) as usize;
                let output = (((sample * k + filter) * p + line) * q + place) as usize;
                match result {
                    0 => sums[input] += values[1][weight] * values[2][output],
                    1 => sums[weight] += values[0][input] * values[2][output],
                    _ => sums[output] += values[0][input] * values[1][weight],
                }
            }
        }
        let [alpha, beta] = self.factors.map(f64::from);
        sums.iter().zip(&values[result]).map(|(sum, old)| alpha * sum + beta * old).collect()
    }

    /// Executes the convolution `times` times. Returns the bytes of the results and the number of
    /// the engine.
    fn run(&self, gpu: &Gpu, times: usize, wanted: impl Fn(i64, &[i32]) -> bool) -> (Vec<Vec<u8>>, i64) {
        let graph = gpu.cudnn.graph(&self.shape, self.pass, self.data_type, self.strides(), self.factors);
        let (plan, engine, workspace) = gpu.plan(graph, wanted);
        let result = RESULTS[self.pass];
        let room = gpu.memory(&vec![0; workspace.max(16)]);
        let results = (0..times).map(|_| {
            let tensors = [0, 1, 2].map(|tensor| gpu.memory(&self.bytes(tensor)));
            let pack = gpu.pack(tensors, room);
            gpu.cuda.ok(gpu.cudnn.cudnnBackendExecute(gpu.handle, plan, pack));
            let bytes = gpu.read(tensors[result], self.bytes(result).len());
            gpu.cudnn.destroy(&[pack]);
            gpu.free(&tensors);
            bytes
        });
        let results = results.collect();
        gpu.free(&[room]);
        gpu.cudnn.destroy(&[graph, plan]);
        (results, engine)
    }

    /// Returns the norm of the error of a result, relative to the norm of the expected one.
    fn error(&self, bytes: &[u8]) -> f64 {
        let (actual, expected) = (self.decoded(RESULTS[self.pass], bytes), self.expected());
        let norm =
            |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        norm(&mut actual.iter().zip(&expected).map(|(a, b)| a - b))
            / norm(&mut expected.iter().copied()).max(1e-30)
    }
}

fn is_strict(notes: &[i32]) -> bool {
    !notes.contains(&TENSOR_CORE) && !notes.contains(&NONDETERMINISTIC)
}

prop_compose! {
    fn cases()(
        batch in 1_i64..3, groups in 1_i64..3, channels in 1_i64..4, filters in 1_i64..4,
        image in [3_i64..8, 3_i64..8], window in [1_i64..4, 1_i64..4], padding in [0_i64..3, 0_i64..3],
        stride in 1_i64..3, dilation in 1_i64..3, flipped: bool, pass in 0_usize..3,
        layout in prop_oneof![Just(Layout::ChannelsSecond), Just(Layout::ChannelsLast), Just(Layout::Gaps)],
        factors in prop_oneof![Just([1.0, 0.0]), Just([1.0, 1.0]), Just([0.5, 2.0])], seed: u32,
    ) -> Case {
        // The window fits into the image.
        let room = |axis: usize| (image[axis] + 2 * padding[axis] - 1) / dilation + 1;
        let window = [0, 1].map(|axis| window[axis].min(room(axis)));
        let shape = Shape {
            batch, channels: channels * groups, image, filters: filters * groups, window, stride, padding,
            dilation, groups, flipped,
        };
        Case { shape, pass, data_type: F32, layout, factors, seed }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn strict_results_match_f64(case in cases()) {
        let gpu = Gpu::start();
        let (results, _) = case.run(&gpu, 2, |_, notes| is_strict(notes));
        gpu.end();
        prop_assert!(case.error(&results[0]) < 1e-6, "{}", case.error(&results[0]));
        prop_assert_eq!(&results[0], &results[1], "deterministic");
        if let Layout::Gaps = case.layout {
            let mut elements = results[0].chunks(4);
            prop_assert!(elements.by_ref().skip(1).step_by(2).all(|gap| gap == [GAP; 4]), "a gap is written");
        }
    }

    #[test]
    fn half_precision_results_match_f64(case in cases(), data_type in prop_oneof![Just(F16), Just(BF16)]) {
        let case = Case { data_type, ..case };
        let gpu = Gpu::start();
        let (results, _) = case.run(&gpu, 1, |_, _| true);
        gpu.end();
        prop_assert!(case.error(&results[0]) < 1e-2, "{}", case.error(&results[0]));
    }
}

const SHAPE: Shape = Shape { batch: 4, channels: 16, image: [12, 12], filters: 16, ..super::SHAPE };

fn case(pass: usize) -> Case {
    Case { shape: SHAPE, pass, data_type: F32, layout: Layout::ChannelsSecond, factors: [1.0, 0.0], seed: 7 }
}

#[test]
fn tensor_cores_round_operands() {
    let gpu = Gpu::start();
    for pass in 0..3 {
        let case = case(pass);
        let (results, _) = case.run(&gpu, 2, |_, notes| notes.contains(&TENSOR_CORE));
        let error = case.error(&results[0]);
        assert!((5e-5..1e-3).contains(&error), "{error}");
        assert_eq!(results[0], results[1]);
    }
    gpu.end();
}

#[test]
fn nondeterministic_engines_differ_from_run_to_run() {
    let gpu = Gpu::start();
    for pass in 1..3 {
        let case = case(pass);
        let (results, _) = case.run(&gpu, 2, |_, notes| notes.contains(&NONDETERMINISTIC));
        assert_ne!(results[0], results[1]);
        assert!(results.iter().all(|result| case.error(result) < 1e-6));
    }
    gpu.end();
}

#[test]
fn engines_add_in_different_orders() {
    let gpu = Gpu::start();
    let case = case(0);
    let (first, engine) = case.run(&gpu, 1, |_, notes| is_strict(notes));
    let (second, other) = case.run(&gpu, 1, |index, notes| index != engine && is_strict(notes));
    assert_ne!((engine, &first), (other, &second));
    assert_ne!(first, second);
    gpu.end();
}

#[test]
fn captured_plans_are_replayed() {
    let gpu = Gpu::start();
    let case = case(0);
    let (expected, engine) = case.run(&gpu, 1, |_, notes| is_strict(notes));
    let graph = gpu.cudnn.graph(&SHAPE, 0, F32, case.strides(), [1.0, 0.0]);
    let (plan, _, workspace) = gpu.plan(graph, |index, _| index == engine);
    let tensors = [0, 1, 2].map(|tensor| gpu.memory(&case.bytes(tensor)));
    let room = gpu.memory(&vec![0; workspace.max(16)]);
    let pack = gpu.pack(tensors, room);
    let execute = || gpu.cuda.ok(gpu.cudnn.cudnnBackendExecute(gpu.handle, plan, pack));
    execute();
    gpu.cuda.ok(gpu.cuda.cuStreamBeginCapture_v2(gpu.stream, 1));
    execute();
    let captured = gpu.cuda.make(|place| gpu.cuda.cuStreamEndCapture(gpu.stream, place));
    let exec = gpu.cuda.instantiated(captured);
    let bytes = case.bytes(2).len();
    gpu.cuda.ok(gpu.cuda.cuMemsetD32Async(tensors[2], 0, bytes / 4, gpu.stream));
    gpu.cuda.ok(gpu.cuda.cuGraphLaunch(exec, gpu.stream));
    assert_eq!(gpu.read(tensors[2], bytes), expected[0]);
    assert_eq!(gpu.cuda.timeline().last().unwrap().2, format!("cudnn_forward_engine_{engine}"));
    gpu.cuda.ok(gpu.cuda.cuGraphExecDestroy(exec));
    gpu.cuda.ok(gpu.cuda.cuGraphDestroy(captured));
    gpu.free(&tensors);
    gpu.free(&[room]);
    gpu.cudnn.destroy(&[pack, plan, graph]);
    gpu.end();
}
