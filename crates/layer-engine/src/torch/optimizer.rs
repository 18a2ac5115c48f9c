//! Squared gradient norms and gradient descent. Functions return the computation of a kernel.

use tch::{Kind, Tensor};

use super::launch::LaunchFunction;
use super::library_error;
use crate::Sgd;

/// Returns the computation of the sum of the squares of all elements that are read, in double
/// precision. The result has the data type `kind`.
pub(super) fn squared_norm(kind: Kind) -> LaunchFunction {
    Box::new(move |launch| {
        let mut total: Option<Tensor> = None;
        for buffer in launch.reads.iter().filter(|buffer| !buffer.is_empty()) {
            let squared = buffer.flat()?.f_norm_scalaropt_dtype(2.0, Kind::Double)?.f_square()?;
            total = Some(total.map_or_else(|| Ok(squared.shallow_clone()), |sum| sum.f_add(&squared))?);
        }
        let [target] = launch.writes else { return Err(library_error("a norm has one result")) };
        if let Some(total) = total {
            return target.put(&total.f_to_kind(kind)?.f_view([1])?);
        }
        let _ = target.flat()?.f_zero_()?;
        Ok(())
    })
}

/// Returns the computation that updates the parameters and the velocities of layers in place by
/// stochastic gradient descent, as `Sgd` defines it.
pub(super) fn sgd_step(rule: Sgd) -> LaunchFunction {
    Box::new(move |launch| {
        let scale = match (rule.clip_norm, launch.reads.last()) {
            (Some(clip), Some(squared)) => {
                Some(squared.flat()?.f_sqrt()?.f_reciprocal()?.f_mul_scalar(clip)?.f_clamp_max(1.0)?)
            }
            _ => None,
        };
        for (gradient, updated) in launch.reads.iter().zip(launch.writes.chunks_exact(2)) {
            let [parameters, velocity] = updated else { continue };
            let (mut parameters, mut velocity) = (parameters.flat()?, velocity.flat()?);
            let mut gradient = gradient.flat()?;
            if let Some(scale) = &scale {
                gradient = gradient.f_mul(scale)?;
            }
            let _ = velocity.f_mul_scalar_(rule.momentum)?.f_add_(&gradient)?;
            if rule.weight_decay != 0.0 {
                let _ = velocity.f_add_(&parameters.f_mul_scalar(rule.weight_decay)?)?;
            }
            let _ = parameters.f_sub_(&velocity.f_mul_scalar(launch.context.learning_rate)?)?;
        }
        Ok(())
    })
}
