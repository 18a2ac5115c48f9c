//! Shape inference: the output shape of a layer, or why it does not fit its inputs.

use crate::{Conv2d, GraphError, LayerKind, Pool2d, Shape};

/// The output shape of a layer of this kind over these inputs.
pub(crate) fn output_shape(name: &str, kind: &LayerKind, inputs: &[Shape]) -> Result<Shape, GraphError> {
    check_input_count(name, kind, inputs.len())?;
    let shape = match kind {
        // The input layer's shape is given, not inferred.
        LayerKind::Input => {
            return Err(shape_error(name, "a graph has one input layer, made with it".into()));
        }
        LayerKind::Conv2d(conv) => convolution(name, conv, &inputs[0])?,
        LayerKind::Linear(linear) => match inputs[0].dims() {
            [_] => Shape::features(linear.out_features),
            _ => return Err(shape_error(name, format!("needs a feature vector, got {}", inputs[0]))),
        },
        LayerKind::BatchNorm(norm) => {
            let positive = norm.epsilon > 0.0 && norm.epsilon.is_finite();
            if !positive || !(0.0..=1.0).contains(&norm.momentum) {
                return Err(shape_error(name, "needs epsilon > 0 and momentum in 0..=1".into()));
            }
            inputs[0].clone()
        }
        LayerKind::Relu | LayerKind::GeluTanh => inputs[0].clone(),
        LayerKind::Dropout(dropout) => {
            if !(0.0..1.0).contains(&dropout.probability) {
                let problem = format!("dropout probability {} is not in 0..1", dropout.probability);
                return Err(shape_error(name, problem));
            }
            inputs[0].clone()
        }
        LayerKind::MaxPool2d(pool) | LayerKind::AvgPool2d(pool) => pooling(name, pool, &inputs[0])?,
        LayerKind::AdaptiveAvgPool2d(pool) => {
            let (channels, _, _) = image(name, &inputs[0])?;
            Shape::image(channels, pool.output[0], pool.output[1])
        }
        LayerKind::Flatten => Shape::features(inputs[0].elements()),
        LayerKind::Concat => concatenation(name, inputs)?,
        LayerKind::Add => {
            if let Some(other) = inputs.iter().find(|&shape| *shape != inputs[0]) {
                return Err(shape_error(name, format!("adds different shapes, {} and {other}", inputs[0])));
            }
            inputs[0].clone()
        }
        LayerKind::SoftmaxCrossEntropy => match inputs[0].dims() {
            [_] => Shape::features(1),
            _ => return Err(shape_error(name, format!("needs a vector of class scores, got {}", inputs[0]))),
        },
    };
    if shape.is_valid() {
        Ok(shape)
    } else {
        Err(shape_error(name, format!("output shape {shape} is empty or too large")))
    }
}

fn check_input_count(name: &str, kind: &LayerKind, got: usize) -> Result<(), GraphError> {
    let (fits, expected) = match kind {
        LayerKind::Input => (got == 0, "no inputs"),
        LayerKind::Concat | LayerKind::Add => (got >= 2, "at least two inputs"),
        _ => (got == 1, "one input"),
    };
    if fits {
        Ok(())
    } else {
        Err(GraphError::InputCount { layer: name.into(), kind: kind.label(), expected, got })
    }
}

fn convolution(name: &str, conv: &Conv2d, input: &Shape) -> Result<Shape, GraphError> {
    let (channels, height, width) = image(name, input)?;
    if conv.groups == 0 || channels % conv.groups != 0 || conv.out_channels % conv.groups != 0 {
        let problem = format!(
            "{} groups do not divide {channels} input and {} output channels",
            conv.groups, conv.out_channels
        );
        return Err(shape_error(name, problem));
    }
    let [out_height, out_width] = windows(name, [height, width], conv.kernel, conv.stride, conv.padding)?;
    Ok(Shape::image(conv.out_channels, out_height, out_width))
}

fn pooling(name: &str, pool: &Pool2d, input: &Shape) -> Result<Shape, GraphError> {
    let (channels, height, width) = image(name, input)?;
    // A window that lies in the padding alone would have no maximum.
    if (0..2).any(|i| pool.padding[i] > pool.kernel[i] / 2) {
        let problem = format!("padding {:?} is more than half of kernel {:?}", pool.padding, pool.kernel);
        return Err(shape_error(name, problem));
    }
    let [out_height, out_width] = windows(name, [height, width], pool.kernel, pool.stride, pool.padding)?;
    Ok(Shape::image(channels, out_height, out_width))
}

fn concatenation(name: &str, inputs: &[Shape]) -> Result<Shape, GraphError> {
    let (mut channels, height, width) = image(name, &inputs[0])?;
    for input in &inputs[1..] {
        let (more, h, w) = image(name, input)?;
        if (h, w) != (height, width) {
            let problem = format!("joins images of different sizes, {} and {input}", inputs[0]);
            return Err(shape_error(name, problem));
        }
        channels += more;
    }
    Ok(Shape::image(channels, height, width))
}

/// How many windows fit in each direction.
fn windows(
    name: &str,
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
) -> Result<[usize; 2], GraphError> {
    let mut counts = [0; 2];
    for i in 0..2 {
        if kernel[i] == 0 || stride[i] == 0 {
            return Err(shape_error(name, "kernel and stride must be at least 1".into()));
        }
        let padded = padding[i].checked_mul(2).and_then(|both| both.checked_add(size[i]));
        let Some(room) = padded.and_then(|padded| padded.checked_sub(kernel[i])) else {
            let problem = format!(
                "kernel {}x{} does not fit into {}x{} with padding {}x{}",
                kernel[0], kernel[1], size[0], size[1], padding[0], padding[1]
            );
            return Err(shape_error(name, problem));
        };
        counts[i] = room / stride[i] + 1;
    }
    Ok(counts)
}

fn image(name: &str, shape: &Shape) -> Result<(usize, usize, usize), GraphError> {
    let problem = || shape_error(name, format!("needs an image (channels x height x width), got {shape}"));
    shape.as_image().ok_or_else(problem)
}

fn shape_error(layer: &str, problem: String) -> GraphError {
    GraphError::Shape { layer: layer.into(), problem }
}
