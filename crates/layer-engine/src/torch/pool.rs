//! Pooling of images. Functions return the computation of a pass. Pairs are `[along the height,
//! along the width]`.

use layer_graph::Pool2d;
use tch::Tensor;

use super::Failure;
use super::dtypes::DTypes;
use super::launch::{LaunchFunction, LayerOperands};
use crate::Role;

/// Windows of a maximum or average pooling, before the pass is chosen.
pub(super) struct PoolWindows {
    operands: LayerOperands,
    kernel: [i64; 2],
    stride: [i64; 2],
    padding: [i64; 2],
    /// Additional padding at the bottom and at the right, which libtorch does not support.
    extra: [i64; 2],
    count_padding: bool,
    dtypes: DTypes,
}

impl PoolWindows {
    /// Creates the windows of a layer's pooling.
    pub(super) fn new(operands: LayerOperands, pool: &Pool2d, dtypes: DTypes) -> Self {
        let pair = |pair: [usize; 2]| pair.map(|size| size as i64);
        Self {
            operands,
            kernel: pair(pool.kernel),
            stride: pair(pool.stride),
            padding: pair(pool.padding),
            extra: pair(pool.extra_padding),
            count_padding: pool.count_padding,
            dtypes,
        }
    }

    /// Returns the image with its extra padding.
    fn extended(&self, image: Tensor, value: f64) -> Result<Tensor, Failure> {
        if self.extra == [0, 0] {
            return Ok(image);
        }
        Ok(image.f_pad([0, self.extra[1], 0, self.extra[0]], "constant", value)?)
    }

    /// Returns the dimensions of the images with their extra padding.
    fn extended_dims(&self) -> Vec<i64> {
        let mut dims = self.operands.inputs[0].clone();
        dims.iter_mut().skip(2).zip(self.extra).for_each(|(size, extra)| *size += extra);
        dims
    }

    /// Returns the part of a padded image's gradient that belongs to the image.
    fn cropped(&self, gradient: Tensor) -> Result<Tensor, Failure> {
        if self.extra == [0, 0] {
            return Ok(gradient);
        }
        let dims = &self.operands.inputs[0];
        Ok(gradient.f_narrow(2, 0, dims[2])?.f_narrow(3, 0, dims[3])?)
    }

    /// Returns the forward pass of a maximum pooling, which saves the indices of the maxima in
    /// training.
    pub(super) fn max(self) -> LaunchFunction {
        Box::new(move |launch| {
            let image = self.extended(self.operands.input(launch)?, f64::NEG_INFINITY)?;
            let (output, places) =
                image.f_max_pool2d_with_indices(self.kernel, self.stride, self.padding, [1, 1], false)?;
            self.operands.put(launch, Role::Output, &output)?;
            self.operands.save(launch, vec![places])
        })
    }

    /// Returns the backward pass of a maximum pooling.
    ///
    /// # Errors
    /// If libtorch cannot allocate a constant of the computation.
    pub(super) fn max_backward(self) -> Result<LaunchFunction, Failure> {
        // Only the dimensions of the image matter.
        let image = self.empty_image()?;
        Ok(Box::new(move |launch| {
            let [places] = self.operands.saved(launch)?;
            let gradient = image.f_max_pool2d_with_indices_backward(
                &self.operands.output_gradient(launch)?,
                self.kernel,
                self.stride,
                self.padding,
                [1, 1],
                false,
                places,
            )?;
            self.operands.put(launch, Role::InputGradient(0), &self.cropped(gradient)?)
        }))
    }

    fn empty_image(&self) -> Result<Tensor, Failure> {
        Ok(Tensor::f_empty(self.extended_dims(), (self.dtypes.kind, self.dtypes.device))?)
    }

    /// For windows whose extra padding is not counted: number of all elements divided by the number
    /// of counted elements of each window.
    fn correction(&self) -> Result<Option<Tensor>, Failure> {
        if self.count_padding || self.extra == [0, 0] {
            return Ok(None);
        }
        let dims = &self.operands.inputs[0];
        let ones = Tensor::f_ones([1, 1, dims[2], dims[3]], (self.dtypes.kind, self.dtypes.device))?;
        Ok(Some(self.means(&self.extended(ones, 0.0)?)?.f_reciprocal()?))
    }

    /// Returns whether libtorch counts the padding.
    fn counts(&self) -> bool {
        self.count_padding || self.extra != [0, 0]
    }

    fn means(&self, image: &Tensor) -> Result<Tensor, Failure> {
        Ok(image.f_avg_pool2d(self.kernel, self.stride, self.padding, false, self.counts(), None)?)
    }

    /// Returns the forward pass of an average pooling.
    ///
    /// # Errors
    /// If libtorch cannot allocate a constant of the computation.
    pub(super) fn mean(self) -> Result<LaunchFunction, Failure> {
        let correction = self.correction()?;
        Ok(Box::new(move |launch| {
            let mut output = self.means(&self.extended(self.operands.input(launch)?, 0.0)?)?;
            if let Some(correction) = &correction {
                output = output.f_mul_(correction)?;
            }
            self.operands.put(launch, Role::Output, &output)
        }))
    }

    /// Returns the backward pass of an average pooling.
    ///
    /// # Errors
    /// If libtorch cannot allocate a constant of the computation.
    pub(super) fn mean_backward(self) -> Result<LaunchFunction, Failure> {
        let (image, correction) = (self.empty_image()?, self.correction()?);
        Ok(Box::new(move |launch| {
            let mut output_gradient = self.operands.output_gradient(launch)?;
            if let Some(correction) = &correction {
                output_gradient = output_gradient.f_mul(correction)?;
            }
            let gradient = image.f_avg_pool2d_backward(
                &output_gradient,
                self.kernel,
                self.stride,
                self.padding,
                false,
                self.counts(),
                None,
            )?;
            self.operands.put(launch, Role::InputGradient(0), &self.cropped(gradient)?)
        }))
    }
}

/// Returns the forward pass of an adaptive average pooling: the windows divide the image as evenly
/// as possible.
pub(super) fn adaptive(operands: LayerOperands) -> LaunchFunction {
    Box::new(move |launch| {
        let output = operands.input(launch)?.f_internal_adaptive_avg_pool2d(&operands.output[2..])?;
        operands.put(launch, Role::Output, &output)
    })
}

/// Returns the backward pass of an adaptive average pooling.
///
/// # Errors
/// If libtorch cannot allocate a constant of the computation.
pub(super) fn adaptive_backward(operands: LayerOperands, dtypes: DTypes) -> Result<LaunchFunction, Failure> {
    // Only the dimensions of the image matter.
    let image = Tensor::f_empty(&operands.inputs[0][..], (dtypes.kind, dtypes.device))?;
    Ok(Box::new(move |launch| {
        let gradient = image.f_internal_adaptive_avg_pool2d_backward(&operands.output_gradient(launch)?)?;
        operands.put(launch, Role::InputGradient(0), &gradient)
    }))
}
