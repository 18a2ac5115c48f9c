//! Terms of a device model. The predicted time of work is the sum over the terms of its amount (the
//! demand) times the time for one unit (the cost). *Moved* bytes are read or written.

use super::Direction;
use crate::Gpu;

/// Term of the cost model: a resource that work uses, in a given unit. Forward and backward passes
/// have separate terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Term {
    /// Number of kernel launches.
    Launch,
    /// Megabytes moved by element-wise layers and copies.
    Stream(Direction),
    /// Megabytes moved by layers that evaluate an exponential or similar function of each element.
    Function(Direction),
    /// Megabytes moved by normalisations.
    Normalisation(Direction),
    /// Megabytes of parameters that the optimiser step updates.
    Update,
    /// Quantity of one class of matrix products, in the unit of its part.
    Product(Product, Direction, Part),
    /// Quantity of pooling layers, in the unit of its part.
    Window(Direction, WindowPart),
}

/// Class of matrix products that use a device in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Product {
    /// Convolutions with a kernel larger than 1x1.
    Spatial,
    /// 1x1 convolutions.
    Pointwise,
    /// Linear layers.
    Linear,
    /// The two products of an attention.
    Attention,
}

/// Quantity of a matrix product that is a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// Floating-point operations, in 10^9.
    Arithmetic,
    /// Number of products summed into one value, in thousands. The sum is sequential, so its time
    /// does not depend on the number of values.
    Depth,
    /// Megabytes of the input.
    Input,
    /// Megabytes of the output.
    Output,
    /// Megabytes of the parameters.
    Parameters,
}

/// Quantity of a pooling layer that is a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum WindowPart {
    /// Megabytes of input and output.
    Moved,
    /// Megabytes covered by the windows; an element counts once for each window that covers it.
    Covered,
    /// Megabytes of the indices of maxima.
    Indices,
}

/// Resource of a data sheet by which the default cost of a term is expressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// One kernel launch.
    Kernel,
    /// 10^9 floating-point operations.
    Gflop,
    /// 10^6 bytes of activations between device memory and the processors, counted in single
    /// precision.
    Megabyte,
    /// 10^6 bytes of values that are in single precision in every number format: the optimiser's.
    MasterMegabyte,
    /// Sum of a thousand products into each value of a tile of 64 x 128 values, on one
    /// multiprocessor.
    TileSum,
}

impl Unit {
    /// All resources, in a fixed order.
    pub(super) const ALL: [Self; 5] =
        [Self::Kernel, Self::Gflop, Self::Megabyte, Self::MasterMegabyte, Self::TileSum];

    /// Returns the time of one unit of the resource at the peaks of a GPU, in microseconds.
    pub(super) fn peak_us(self, gpu: &Gpu) -> f64 {
        let Gpu { sheet, format } = gpu;
        // A GPU is not used in a format that it does not support.
        let peak_flops_per_s = sheet.peak_flops_per_s(*format).unwrap_or(sheet.fp32_flops_per_s);
        match self {
            // Time of a captured graph with one empty kernel.
            Self::Kernel => 5.0,
            Self::Gflop => 1e15 / peak_flops_per_s,
            Self::Megabyte => format.activation_part() * 1e12 / sheet.bandwidth_bytes_per_s,
            Self::MasterMegabyte => 1e12 / sheet.bandwidth_bytes_per_s,
            // A multiprocessor works on a tile of 64 x 128 values, each a sum of a thousand
            // products.
            Self::TileSum => {
                let tile_flops = 2.0 * 64.0 * 128.0 * 1e3;
                tile_flops * f64::from(sheet.multiprocessors) / peak_flops_per_s * 1e6
            }
        }
    }
}

/// Group of terms whose costs differ between devices by a common factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Launch,
    Update,
    /// Arithmetic of linear layers and attention.
    ProductArithmetic,
    /// Arithmetic of convolutions.
    ConvolutionArithmetic,
    Depth,
    Normalisation,
    /// Bytes of the layers that compute element by element, and of pooling.
    Stream,
    /// Bytes of matrix products.
    ProductBytes,
}

impl Group {
    /// All groups, in the order of their numbers.
    pub(super) const ALL: [Self; 8] = [
        Self::Launch,
        Self::Update,
        Self::ProductArithmetic,
        Self::ConvolutionArithmetic,
        Self::Depth,
        Self::Normalisation,
        Self::Stream,
        Self::ProductBytes,
    ];
    pub(super) const COUNT: usize = Self::ALL.len();

    /// Returns the weight of the penalty on the group's factor, relative to that of a term. It is
    /// small for what depends on the libraries.
    pub(super) fn weight(self) -> f64 {
        match self {
            Self::Update => 0.5,
            Self::Depth | Self::Launch => 0.1,
            Self::ProductBytes => 0.06,
            _ => 0.03,
        }
    }
}

impl Product {
    const ALL: [Self; 4] = [Self::Spatial, Self::Pointwise, Self::Linear, Self::Attention];

    fn label(self) -> &'static str {
        match self {
            Self::Spatial => "spatial",
            Self::Pointwise => "pointwise",
            Self::Linear => "linear",
            Self::Attention => "attention",
        }
    }

    /// Returns the parts of this class. Attention has no parameters.
    fn parts(self) -> &'static [Part] {
        const ALL: [Part; 5] = [Part::Arithmetic, Part::Depth, Part::Input, Part::Output, Part::Parameters];
        match self {
            Self::Attention => &ALL[..4],
            _ => &ALL,
        }
    }
}

impl Direction {
    const ALL: [Self; 2] = [Self::Forward, Self::Backward];

    fn label(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }
}

impl Term {
    /// Returns all terms, in the order of the JSON format.
    pub(super) fn all() -> Vec<Self> {
        let mut terms = vec![Self::Launch, Self::Update];
        terms.extend(Direction::ALL.map(Self::Stream));
        terms.extend(Direction::ALL.map(Self::Function));
        terms.extend(Direction::ALL.map(Self::Normalisation));
        for product in Product::ALL {
            for pass in Direction::ALL {
                terms.extend(product.parts().iter().map(|&part| Self::Product(product, pass, part)));
            }
        }
        for pass in Direction::ALL {
            let parts = [WindowPart::Moved, WindowPart::Covered, WindowPart::Indices];
            terms.extend(parts.map(|part| Self::Window(pass, part)));
        }
        terms
    }

    /// Returns the name of the term's cost in the JSON format, which includes its unit, such as
    /// `launch_us`.
    pub(super) fn name(self) -> String {
        match self {
            Self::Launch => "launch_us".into(),
            Self::Stream(pass) => format!("stream_{}_us_per_mb", pass.label()),
            Self::Function(pass) => format!("function_{}_us_per_mb", pass.label()),
            Self::Normalisation(pass) => format!("normalisation_{}_us_per_mb", pass.label()),
            Self::Update => "update_us_per_mb".into(),
            Self::Product(product, pass, part) => {
                let part = match part {
                    Part::Arithmetic => "us_per_gflop",
                    Part::Depth => "depth_us_per_thousand",
                    Part::Input => "input_us_per_mb",
                    Part::Output => "output_us_per_mb",
                    Part::Parameters => "parameters_us_per_mb",
                };
                format!("{}_{}_{part}", product.label(), pass.label())
            }
            Self::Window(pass, part) => {
                let part = match part {
                    WindowPart::Moved => "moved",
                    WindowPart::Covered => "covered",
                    WindowPart::Indices => "places",
                };
                format!("window_{}_{part}_us_per_mb", pass.label())
            }
        }
    }

    /// Returns the cost of one unit of the term that is assumed without measurements: a resource
    /// and a number of its units. The cost is the time of these units at the device's peak rate.
    pub(super) fn default_cost(self) -> (Unit, f64) {
        match self {
            Self::Launch => (Unit::Kernel, 1.0),
            Self::Stream(_) | Self::Function(_) | Self::Normalisation(_) => (Unit::Megabyte, 1.0),
            // Stochastic gradient descent with momentum reads gradient, parameter and velocity, and
            // writes the last two.
            Self::Update => (Unit::MasterMegabyte, 5.0),
            Self::Product(_, pass, part) => {
                let backward = pass == Direction::Backward;
                match part {
                    // Two thirds of the peak rate.
                    Part::Arithmetic => (Unit::Gflop, 1.5),
                    Part::Depth => (Unit::TileSum, if backward { 1.5 } else { 1.0 }),
                    // Read, and once more to change its layout. Backward, it is read and its
                    // gradient is written.
                    Part::Input => (Unit::Megabyte, if backward { 3.0 } else { 2.0 }),
                    Part::Output => (Unit::Megabyte, 2.0),
                    // Read. Backward, its gradient is written and then accumulated.
                    Part::Parameters => (Unit::MasterMegabyte, if backward { 5.0 } else { 1.0 }),
                }
            }
            Self::Window(pass, part) => match part {
                WindowPart::Moved | WindowPart::Indices => (Unit::Megabyte, 1.0),
                // Forward, most of the overlap of windows is in a cache.
                WindowPart::Covered => (Unit::Megabyte, if pass == Direction::Backward { 1.0 } else { 0.3 }),
            },
        }
    }

    /// Returns the relative weight of the regularisation towards the default cost; 1 for most
    /// terms. It is high for layers that only move bytes: they must not absorb the cost of the
    /// products they were measured with.
    pub(super) fn prior_weight(self) -> f64 {
        match self {
            Self::Stream(_) | Self::Function(_) | Self::Normalisation(_) => 100.0,
            _ => 1.0,
        }
    }

    /// Returns the minimum cost of one unit of the term, in units of the resource of its default
    /// cost: operations must be computed, and bytes moved, at least once. 0 is no minimum.
    pub(super) fn min_cost(self) -> f64 {
        match self {
            Self::Launch | Self::Product(_, _, Part::Depth) | Self::Window(_, WindowPart::Covered) => 0.0,
            Self::Update => 5.0,
            _ => 1.0,
        }
    }

    /// Returns the group of the term.
    pub(super) fn group(self) -> Group {
        match self {
            Self::Launch => Group::Launch,
            Self::Update => Group::Update,
            Self::Stream(_) | Self::Function(_) | Self::Window(..) => Group::Stream,
            Self::Normalisation(_) => Group::Normalisation,
            Self::Product(product, _, part) => match (product, part) {
                (Product::Linear | Product::Attention, Part::Arithmetic) => Group::ProductArithmetic,
                (_, Part::Arithmetic) => Group::ConvolutionArithmetic,
                (_, Part::Depth) => Group::Depth,
                _ => Group::ProductBytes,
            },
        }
    }

    /// Returns the minimum cost on a GPU, in microseconds: parameters are updated, and products are
    /// computed, except that Winograd's algorithm saves 5 of 9 multiplications of 3x3 convolutions.
    /// Other operations are fused with their neighbours.
    pub(super) fn physical_min_us(self, gpu: &Gpu) -> f64 {
        let (unit, _) = self.default_cost();
        let units = match self {
            Self::Update => 5.0,
            Self::Product(Product::Spatial, _, Part::Arithmetic) => 4.0 / 9.0,
            Self::Product(_, _, Part::Arithmetic) => 1.0,
            _ => 0.0,
        };
        units * unit.peak_us(gpu)
    }

    /// Returns the default cost on a GPU, in microseconds.
    pub(super) fn default_cost_us(self, gpu: &Gpu) -> f64 {
        let (unit, multiple) = self.default_cost();
        multiple * unit.peak_us(gpu)
    }
}
