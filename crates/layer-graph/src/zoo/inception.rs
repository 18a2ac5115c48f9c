//! Inception-V3 (Szegedy et al., 2016) for 299x299 images, without the auxiliary classifier.

use crate::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, Dropout, GraphError, LayerGraph, LayerId, LayerKind, Linear,
    Pool2d, Shape,
};

/// Builds Inception-V3 under the given name. Its layers fit their inputs, so that no error is
/// returned.
pub(super) fn inception_v3(name: &str) -> Result<LayerGraph, GraphError> {
    let mut net = Builder { net: LayerGraph::new(name, Shape::image(3, 299, 299))? };
    let mut x = net.net.input();
    x = net.conv("Conv2d_1a_3x3", Conv2d::new(32, 3).stride(2), x)?;
    x = net.conv("Conv2d_2a_3x3", Conv2d::new(32, 3), x)?;
    x = net.conv("Conv2d_2b_3x3", Conv2d::new(64, 3).padding(1), x)?;
    x = net.max_pool("maxpool1", x)?;
    x = net.conv("Conv2d_3b_1x1", Conv2d::new(80, 1), x)?;
    x = net.conv("Conv2d_4a_3x3", Conv2d::new(192, 3), x)?;
    x = net.max_pool("maxpool2", x)?;
    for (label, pool_channels) in [("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)] {
        x = net.block_a(label, pool_channels, x)?;
    }
    x = net.block_b("Mixed_6a", x)?;
    for (label, width) in [("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)] {
        x = net.block_c(label, width, x)?;
    }
    x = net.block_d("Mixed_7a", x)?;
    for label in ["Mixed_7b", "Mixed_7c"] {
        x = net.block_e(label, x)?;
    }
    let mut net = net.net;
    x = net.add("avgpool", AdaptiveAvgPool2d { output: [1, 1] }, [x])?;
    x = net.add("dropout", Dropout::new(0.5), [x])?;
    x = net.add("flatten", LayerKind::Flatten, [x])?;
    x = net.add("fc", Linear::new(1000), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

/// Builder of the network. Blocks are lettered as torchvision's `InceptionA` to `InceptionE`.
struct Builder {
    net: LayerGraph,
}

impl Builder {
    /// Adds a convolution without bias, a batch normalisation and a ReLU.
    fn conv(&mut self, label: &str, conv: Conv2d, input: LayerId) -> Result<LayerId, GraphError> {
        let x = self.net.add(format!("{label}.conv"), conv.without_bias(), [input])?;
        let norm = BatchNorm { epsilon: 1e-3, ..BatchNorm::default() };
        let x = self.net.add(format!("{label}.bn"), norm, [x])?;
        self.net.add(format!("{label}.relu"), LayerKind::Relu, [x])
    }

    /// Adds a chain of convolutions named `label_1`, `label_2` and so on.
    fn chain(
        &mut self,
        label: &str,
        convolutions: impl IntoIterator<Item = Conv2d>,
        input: LayerId,
    ) -> Result<LayerId, GraphError> {
        let mut x = input;
        for (i, conv) in convolutions.into_iter().enumerate() {
            x = self.conv(&format!("{label}_{}", i + 1), conv, x)?;
        }
        Ok(x)
    }

    fn max_pool(&mut self, label: &str, input: LayerId) -> Result<LayerId, GraphError> {
        self.net.add(label, LayerKind::MaxPool2d(Pool2d::new(3, 2)), [input])
    }

    /// Adds an average pooling that keeps the size, and a 1x1 convolution.
    fn pool_branch(&mut self, label: &str, channels: usize, input: LayerId) -> Result<LayerId, GraphError> {
        let pool = LayerKind::AvgPool2d(Pool2d::new(3, 1).padding(1));
        let x = self.net.add(format!("{label}.avgpool"), pool, [input])?;
        self.conv(&format!("{label}.branch_pool"), Conv2d::new(channels, 1), x)
    }

    fn concat(&mut self, label: &str, branches: &[LayerId]) -> Result<LayerId, GraphError> {
        self.net.add(format!("{label}.concat"), LayerKind::Concat, branches)
    }

    fn block_a(&mut self, label: &str, pool_channels: usize, x: LayerId) -> Result<LayerId, GraphError> {
        let one = self.conv(&format!("{label}.branch1x1"), Conv2d::new(64, 1), x)?;
        let five = [Conv2d::new(48, 1), Conv2d::new(64, 5).padding(2)];
        let five = self.chain(&format!("{label}.branch5x5"), five, x)?;
        let three = [Conv2d::new(64, 1), Conv2d::new(96, 3).padding(1), Conv2d::new(96, 3).padding(1)];
        let three = self.chain(&format!("{label}.branch3x3dbl"), three, x)?;
        let pool = self.pool_branch(label, pool_channels, x)?;
        self.concat(label, &[one, five, three, pool])
    }

    fn block_b(&mut self, label: &str, x: LayerId) -> Result<LayerId, GraphError> {
        let three = self.conv(&format!("{label}.branch3x3"), Conv2d::new(384, 3).stride(2), x)?;
        let double = [Conv2d::new(64, 1), Conv2d::new(96, 3).padding(1), Conv2d::new(96, 3).stride(2)];
        let double = self.chain(&format!("{label}.branch3x3dbl"), double, x)?;
        let pool = self.max_pool(&format!("{label}.maxpool"), x)?;
        self.concat(label, &[three, double, pool])
    }

    fn block_c(&mut self, label: &str, width: usize, x: LayerId) -> Result<LayerId, GraphError> {
        let one = self.conv(&format!("{label}.branch1x1"), Conv2d::new(192, 1), x)?;
        let seven = [Conv2d::new(width, 1), row(width), column(192)];
        let seven = self.chain(&format!("{label}.branch7x7"), seven, x)?;
        let double = [Conv2d::new(width, 1), column(width), row(width), column(width), row(192)];
        let double = self.chain(&format!("{label}.branch7x7dbl"), double, x)?;
        let pool = self.pool_branch(label, 192, x)?;
        self.concat(label, &[one, seven, double, pool])
    }

    fn block_d(&mut self, label: &str, x: LayerId) -> Result<LayerId, GraphError> {
        let three = [Conv2d::new(192, 1), Conv2d::new(320, 3).stride(2)];
        let three = self.chain(&format!("{label}.branch3x3"), three, x)?;
        let seven = [Conv2d::new(192, 1), row(192), column(192), Conv2d::new(192, 3).stride(2)];
        let seven = self.chain(&format!("{label}.branch7x7x3"), seven, x)?;
        let pool = self.max_pool(&format!("{label}.maxpool"), x)?;
        self.concat(label, &[three, seven, pool])
    }

    fn block_e(&mut self, label: &str, x: LayerId) -> Result<LayerId, GraphError> {
        let one = self.conv(&format!("{label}.branch1x1"), Conv2d::new(320, 1), x)?;
        let three = self.conv(&format!("{label}.branch3x3_1"), Conv2d::new(384, 1), x)?;
        let three = self.split(&format!("{label}.branch3x3_2"), three)?;
        let double = [Conv2d::new(448, 1), Conv2d::new(384, 3).padding(1)];
        let double = self.chain(&format!("{label}.branch3x3dbl"), double, x)?;
        let double = self.split(&format!("{label}.branch3x3dbl_3"), double)?;
        let pool = self.pool_branch(label, 192, x)?;
        self.concat(label, &[one, three, double, pool])
    }

    /// Adds a 1x3 and a 3x1 convolution side by side and concatenates them.
    fn split(&mut self, label: &str, x: LayerId) -> Result<LayerId, GraphError> {
        let a = Conv2d::rectangular(384, [1, 3]).padding_hw([0, 1]);
        let a = self.conv(&format!("{label}a"), a, x)?;
        let b = Conv2d::rectangular(384, [3, 1]).padding_hw([1, 0]);
        let b = self.conv(&format!("{label}b"), b, x)?;
        self.concat(label, &[a, b])
    }
}

fn row(channels: usize) -> Conv2d {
    Conv2d::rectangular(channels, [1, 7]).padding_hw([0, 3])
}

fn column(channels: usize) -> Conv2d {
    Conv2d::rectangular(channels, [7, 1]).padding_hw([3, 0])
}
