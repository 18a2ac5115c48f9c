//! Safe wrappers of the C++ functions. All of them fail with the message of libtorch if it throws.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use tch::{Device, Kind, Tensor};

use super::{Failure, library_error};
use crate::Real;

/// libtorch's `at::Tensor`, which Rust accesses only through pointers.
#[repr(C)]
pub(super) struct CTensor {
    _opaque: [u8; 0],
}

/// Error message of a C++ function, owned by the caller, or null if the function succeeded.
pub(super) type Message = *mut c_char;

unsafe extern "C" {
    fn layer_engine_free(message: Message);
    fn layer_engine_convolution_backward(
        output_gradient: *const CTensor,
        input: *const CTensor,
        weight: *const CTensor,
        stride: *const i64,
        padding: *const i64,
        dilation: *const i64,
        output_padding: *const i64,
        groups: i64,
        wanted: *const bool,
        results: *mut *mut CTensor,
    ) -> Message;
    fn layer_engine_layer_norm_backward(
        output_gradient: *const CTensor,
        input: *const CTensor,
        mean: *const CTensor,
        inverse_deviation: *const CTensor,
        weight: *const CTensor,
        bias: *const CTensor,
        wanted: *const bool,
        results: *mut *mut CTensor,
    ) -> Message;
    fn layer_engine_batch_norm_backward(
        output_gradient: *const CTensor,
        input: *const CTensor,
        mean: *const CTensor,
        inverse_deviation: *const CTensor,
        results: *mut *mut CTensor,
    ) -> Message;
    fn layer_engine_attention(
        inputs: *const *const CTensor,
        count: usize,
        heads: i64,
        causal: bool,
        scale: f64,
        factors: *const CTensor,
        biases: *const CTensor,
        buckets: *const CTensor,
        mask: *const CTensor,
        differentiable: bool,
        leaves: *mut *mut CTensor,
        result: *mut *mut CTensor,
    ) -> Message;
    fn layer_engine_gradients(
        result: *const CTensor,
        leaves: *const *const CTensor,
        count: usize,
        output_gradient: *const CTensor,
        gradients: *mut *mut CTensor,
    ) -> Message;
    fn layer_engine_cuda_open(devices: *mut c_int) -> Message;
    fn layer_engine_cuda_describe(
        device: c_int,
        name: *mut c_char,
        clock_khz: *mut c_int,
        versions: *mut i64,
    ) -> Message;
    fn layer_engine_stream_new(device: c_int, priority: c_int, stream: *mut i64) -> Message;
    fn layer_engine_stream_enter(
        device: c_int,
        stream: i64,
        previous_device: *mut c_int,
        previous_stream: *mut i64,
    ) -> Message;
    fn layer_engine_stream_leave(device: c_int, previous_device: c_int, previous_stream: i64) -> Message;
    fn layer_engine_stream_synchronize(device: c_int, stream: i64) -> Message;
}

/// Converts the result of a C++ function: null to `Ok`, a message to an error. Frees the message.
pub(super) fn check(message: Message) -> Result<(), Failure> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: a non-null message is a C string that belongs to the caller until it is freed.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: the message was allocated by the C++ side, and nothing refers to it any more.
    unsafe { layer_engine_free(message) };
    Err(library_error(&text))
}

fn pointer(tensor: &Tensor) -> *const CTensor {
    tensor.as_ptr().cast()
}

/// Takes ownership of a tensor that a C++ function returned.
fn owned_tensor(tensor: *mut CTensor) -> Option<Tensor> {
    // SAFETY: the C++ function created the tensor with `new`, as `tch` does, and has given up
    // ownership.
    (!tensor.is_null()).then(|| unsafe { Tensor::from_ptr(tensor.cast()) })
}

fn required(tensor: *mut CTensor) -> Result<Tensor, Failure> {
    owned_tensor(tensor).ok_or_else(|| library_error("no tensor was returned"))
}

/// Gradients of a layer's input, weight and bias; `None` if it was not requested or does not exist.
pub(super) type Gradients = [Option<Tensor>; 3];

fn gradients(call: impl FnOnce(*mut *mut CTensor) -> Message) -> Result<Gradients, Failure> {
    let mut results = [std::ptr::null_mut(); 3];
    check(call(results.as_mut_ptr()))?;
    Ok(results.map(owned_tensor))
}

/// Geometry of a convolution. Pairs are `[along the height, along the width]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConvGeometry {
    /// Distance between neighbouring windows, in pixels.
    pub(super) stride: [i64; 2],
    /// Number of zeros at each end of an axis.
    pub(super) padding: [i64; 2],
    /// Distance between neighbouring elements of the kernel.
    pub(super) dilation: [i64; 2],
    /// Number of rows and columns added to the output, if the convolution is transposed.
    pub(super) output_padding: Option<[i64; 2]>,
    /// Number of groups into which channels are divided.
    pub(super) groups: i64,
}

/// Computes the gradients of a convolution with respect to input, weight and bias, each only if its
/// element of `wanted` is true.
pub(super) fn convolution_backward(
    output_gradient: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    geometry: ConvGeometry,
    wanted: [bool; 3],
) -> Result<Gradients, Failure> {
    let tensors = [output_gradient, input, weight].map(pointer);
    // SAFETY: the tensors live through the call, and the arrays have the lengths that it accesses:
    // 2, 2, 2, 2 unless null, 3, 3.
    gradients(|results| unsafe {
        layer_engine_convolution_backward(
            tensors[0],
            tensors[1],
            tensors[2],
            geometry.stride.as_ptr(),
            geometry.padding.as_ptr(),
            geometry.dilation.as_ptr(),
            geometry.output_padding.as_ref().map_or(std::ptr::null(), |pair| pair.as_ptr()),
            geometry.groups,
            wanted.as_ptr(),
            results,
        )
    })
}

/// Computes the gradients of a layer normalisation with respect to input, weight and bias, each
/// only if its element of `wanted` is true. `mean` and `inverse_deviation`, which is `1 /
/// sqrt(variance + epsilon)`, have one value per normalised vector.
pub(super) fn layer_norm_backward(
    output_gradient: &Tensor,
    input: &Tensor,
    [mean, inverse_deviation]: [&Tensor; 2],
    [weight, bias]: [&Tensor; 2],
    wanted: [bool; 3],
) -> Result<Gradients, Failure> {
    let tensors = [output_gradient, input, mean, inverse_deviation, weight, bias].map(pointer);
    // SAFETY: the tensors live through the call, and both arrays have three elements.
    gradients(|results| unsafe {
        layer_engine_layer_norm_backward(
            tensors[0],
            tensors[1],
            tensors[2],
            tensors[3],
            tensors[4],
            tensors[5],
            wanted.as_ptr(),
            results,
        )
    })
}

/// Computes the gradients of a batch normalisation with respect to weight and bias. The first
/// element of the result, the gradient of the input, is `None`. `mean` and `inverse_deviation`,
/// which is `1 / sqrt(variance + epsilon)`, have one value for each channel, with which the forward
/// pass has normalised.
pub(super) fn batch_norm_backward(
    output_gradient: &Tensor,
    input: &Tensor,
    [mean, inverse_deviation]: [&Tensor; 2],
) -> Result<Gradients, Failure> {
    let tensors = [output_gradient, input, mean, inverse_deviation].map(pointer);
    // SAFETY: the tensors live through the call, and the array has three elements.
    gradients(|results| unsafe {
        layer_engine_batch_norm_backward(tensors[0], tensors[1], tensors[2], tensors[3], results)
    })
}

/// Hyper-parameters of an attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttentionOptions {
    /// Number of heads of the queries.
    pub(super) heads: i64,
    /// Whether a position attends only to itself and to earlier positions.
    pub(super) causal: bool,
    /// Factor of the products of queries and keys.
    pub(super) scale: f64,
}

/// Computes attention over one tensor of `samples x positions x 3 features` (queries, keys,
/// values), or over three tensors of `samples x positions x features`. Returns the leaves, which
/// stand for the inputs in libtorch's autograd graph, and the result. If `differentiable` is true,
/// that graph is recorded, and [`gradients_of_leaves`] can differentiate the result with respect to
/// the leaves. If it is false, no graph is recorded. The weights of each sample, head, query and
/// key are multiplied by `factors`, if there are any. `biases` are a parameter of `buckets x
/// heads`, the last leaf, and the bucket of each query and key. `mask` is added to the scaled
/// products, and hides later keys if the attention is causal.
pub(super) fn attention(
    inputs: &[Tensor],
    options: AttentionOptions,
    (factors, biases, mask): (Option<&Tensor>, Option<[&Tensor; 2]>, Option<&Tensor>),
    differentiable: bool,
) -> Result<(Vec<Tensor>, Tensor), Failure> {
    let AttentionOptions { heads, causal, scale } = options;
    let pointers: Vec<_> = inputs.iter().map(pointer).collect();
    let count = inputs.len() + usize::from(biases.is_some());
    let (mut leaves, mut result) = (vec![std::ptr::null_mut(); count], std::ptr::null_mut());
    let [learned, buckets] = biases.map_or([std::ptr::null(); 2], |biases| biases.map(pointer));
    // SAFETY: the tensors live through the call, which writes to the result and to as many leaves
    // as there are inputs, and one more with biases.
    check(unsafe {
        layer_engine_attention(
            pointers.as_ptr(),
            pointers.len(),
            heads,
            causal,
            scale,
            factors.map_or(std::ptr::null(), pointer),
            learned,
            buckets,
            mask.map_or(std::ptr::null(), pointer),
            differentiable,
            leaves.as_mut_ptr(),
            &raw mut result,
        )
    })?;
    Ok((leaves.into_iter().map(required).collect::<Result<_, _>>()?, required(result)?))
}

/// Computes the gradients of a result of libtorch's autograd graph with respect to its leaves from
/// the gradient of the result.
pub(super) fn gradients_of_leaves(
    result: &Tensor,
    leaves: &[Tensor],
    output_gradient: &Tensor,
) -> Result<Vec<Tensor>, Failure> {
    let pointers: Vec<_> = leaves.iter().map(pointer).collect();
    let mut gradients = vec![std::ptr::null_mut(); leaves.len()];
    // SAFETY: the tensors live through the call, which writes to as many gradients as there are
    // leaves.
    check(unsafe {
        layer_engine_gradients(
            pointer(result),
            pointers.as_ptr(),
            pointers.len(),
            pointer(output_gradient),
            gradients.as_mut_ptr(),
        )
    })?;
    gradients.into_iter().map(required).collect()
}

/// Computes the gradient of a result of libtorch's autograd graph with respect to its leaf from the
/// gradient of the result.
pub(super) fn gradient(result: &Tensor, leaf: &Tensor, output_gradient: &Tensor) -> Result<Tensor, Failure> {
    let gradients = gradients_of_leaves(result, std::slice::from_ref(leaf), output_gradient)?;
    gradients.into_iter().next().ok_or_else(|| library_error("no tensor was returned"))
}

/// Copies numbers of the host to the start of a one-dimensional tensor of at least this length.
/// `kind` is the data type of `T`. `host` is no longer used after the call.
pub(super) fn copy_from_host<T: Real>(host: &[T], kind: Kind, target: &Tensor) -> Result<(), Failure> {
    let length = host.len() as i64;
    // SAFETY: the temporary tensor has the length and kind of `host` and is dropped before this
    // function returns.
    let source = unsafe { Tensor::f_from_blob(host.as_ptr().cast(), &[length], &[1], kind, Device::Cpu) }?;
    target.f_narrow(0, 0, length)?.f_copy_(&source)?;
    Ok(())
}

/// Copies the start of a one-dimensional tensor to the host once the work before it in the current
/// stream is complete. `kind` is the data type of `T`.
pub(super) fn copy_to_host<T: Real>(source: &Tensor, host: &mut [T], kind: Kind) -> Result<(), Failure> {
    let length = host.len() as i64;
    // SAFETY: the temporary tensor has the length and kind of `host`, which is exclusively
    // borrowed, and is dropped before this function returns. A copy to pageable memory is complete
    // when it returns.
    let mut target =
        unsafe { Tensor::f_from_blob(host.as_mut_ptr().cast(), &[length], &[1], kind, Device::Cpu) }?;
    target.f_copy_(&source.f_narrow(0, 0, length)?)?;
    Ok(())
}

/// Opens libtorch's CUDA library and returns the number of CUDA devices. Fails if the library
/// cannot be opened.
pub(super) fn cuda_devices() -> Result<usize, Failure> {
    let mut devices = 0;
    // SAFETY: the call writes to the pointer.
    check(unsafe { layer_engine_cuda_open(&raw mut devices) })?;
    Ok(usize::try_from(devices).unwrap_or(0))
}

/// Properties of a CUDA device.
#[derive(Debug)]
pub(super) struct CudaDescription {
    /// Name of the device, such as `NVIDIA H200`.
    pub(super) name: String,
    /// Clock rate in kHz, or `None` if it is unknown.
    pub(super) clock_khz: Option<u32>,
    /// Versions of cuDNN, of the CUDA runtime, and of the latest CUDA that the driver supports.
    /// `None` if unknown. CUDA's are 1000 x major + 10 x minor: 13000 is 13.0. cuDNN's are 10000 x
    /// major + 100 x minor + patch from version 9 on, so that 91002 is 9.10.2, and 1000 x major +
    /// 100 x minor + patch before.
    pub(super) versions: [Option<u32>; 3],
}

/// Returns the properties of the CUDA device with this index.
pub(super) fn cuda_describe(device: c_int) -> Result<CudaDescription, Failure> {
    let mut name = [0u8; 256];
    let mut clock_khz = 0;
    let mut versions = [0i64; 3];
    // SAFETY: the call writes at most 255 bytes of the name, so that it stays NUL-terminated, one
    // number, and three versions.
    check(unsafe {
        layer_engine_cuda_describe(
            device,
            name.as_mut_ptr().cast(),
            &raw mut clock_khz,
            versions.as_mut_ptr(),
        )
    })?;
    let name = CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned());
    let known = |value: i64| u32::try_from(value).ok().filter(|&value| value > 0);
    Ok(CudaDescription {
        name: name.unwrap_or_default(),
        clock_khz: known(clock_khz.into()),
        versions: versions.map(known),
    })
}

/// A stream of a CUDA device. libtorch owns it and may return the same stream of its pool to
/// several users.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    /// Index of the CUDA device, counted from 0.
    pub(super) device: c_int,
    /// Identifier that libtorch gives the stream on its device.
    pub(super) id: i64,
}

impl Stream {
    /// Returns a stream of a device. Work of streams with lower `priority` runs first.
    pub(super) fn new(device: c_int, priority: c_int) -> Result<Self, Failure> {
        let mut id = 0;
        // SAFETY: the call writes to the pointer.
        check(unsafe { layer_engine_stream_new(device, priority, &raw mut id) })?;
        Ok(Self { device, id })
    }

    /// Makes the stream and its device current for this thread until the guard is dropped.
    pub(super) fn enter(self) -> Result<StreamGuard, Failure> {
        let (mut previous_device, mut previous_stream) = (0, 0);
        // SAFETY: the call writes to the two pointers.
        check(unsafe {
            layer_engine_stream_enter(
                self.device,
                self.id,
                &raw mut previous_device,
                &raw mut previous_stream,
            )
        })?;
        Ok(StreamGuard { device: self.device, previous_device, previous_stream })
    }

    /// Waits until all work in the stream is complete. Fails if any of it failed.
    pub(super) fn synchronize(self) -> Result<(), Failure> {
        // SAFETY: the stream belongs to the device.
        check(unsafe { layer_engine_stream_synchronize(self.device, self.id) })
    }
}

/// Guard that restores the thread's previous stream and device when dropped.
#[derive(Debug)]
pub(super) struct StreamGuard {
    device: c_int,
    previous_device: c_int,
    previous_stream: i64,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        // SAFETY: the device and the stream were current before.
        let left =
            unsafe { layer_engine_stream_leave(self.device, self.previous_device, self.previous_stream) };
        // The stream was current before, so this cannot fail; an error could not be reported here.
        let _ = check(left);
    }
}
