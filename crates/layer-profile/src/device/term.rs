use super::{DataSheet, Direction};

/// What work asks of a device, in units that a device has a price for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Term {
    /// Kernels that are launched.
    Launch,
    /// Megabytes that kernels move which touch each element in passing: element-wise layers and copies.
    Stream(Direction),
    /// Megabytes that layers move which take an exponential or the like of each element.
    Function(Direction),
    /// Megabytes that normalisations move.
    Normalisation(Direction),
    /// Megabytes of parameters that the optimiser steps over.
    Update,
    /// A part of what a class of matrix products asks for.
    Product(Product, Direction, Part),
    /// A part of what pooling asks for.
    Window(Direction, WindowPart),
}

/// Matrix products that use a device in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Product {
    /// Convolutions with a kernel larger than 1x1.
    Spatial,
    /// 1x1 convolutions.
    Pointwise,
    Linear,
    Attention,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// Floating-point operations, in 1e9.
    Arithmetic,
    /// Products that are summed into one value, one after another however few values there are, in thousands.
    Depth,
    /// Megabytes of the input.
    Input,
    /// Megabytes of the output.
    Output,
    /// Megabytes of the parameters.
    Parameters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum WindowPart {
    /// Megabytes of input and output.
    Moved,
    /// Megabytes that the windows cover, each element as often as it is covered.
    Covered,
    /// Megabytes of the places of maxima.
    Places,
}

/// What one unit of a term is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Kernel,
    Gflop,
    Megabyte,
    Thousand,
}

impl Unit {
    pub(super) const ALL: [Self; 4] = [Self::Kernel, Self::Gflop, Self::Megabyte, Self::Thousand];

    /// Time of one at the peak of a data sheet, in microseconds.
    pub(super) fn peak_us(self, sheet: &DataSheet) -> f64 {
        match self {
            // What a captured graph of one empty kernel takes.
            Self::Kernel => 5.0,
            Self::Gflop => 1e15 / sheet.peak_flops_per_s,
            Self::Megabyte => 1e12 / sheet.bandwidth_bytes_per_s,
            // A multiprocessor works on a tile of 64 x 128 values, each of them a sum of a thousand products.
            Self::Thousand => {
                let tile_flops = 2.0 * 64.0 * 128.0 * 1e3;
                tile_flops * f64::from(sheet.multiprocessors) / sheet.peak_flops_per_s * 1e6
            }
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

    /// What a product of this class asks for. Attention has no parameters.
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
    /// All terms, in the order in which they are written.
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
            let parts = [WindowPart::Moved, WindowPart::Covered, WindowPart::Places];
            terms.extend(parts.map(|part| Self::Window(pass, part)));
        }
        terms
    }

    /// The name of its price in the JSON format, with the unit.
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
                    WindowPart::Places => "places",
                };
                format!("window_{}_{part}_us_per_mb", pass.label())
            }
        }
    }

    /// How many plain units one unit of the term costs where nothing was measured: what a textbook would say.
    pub(super) fn textbook(self) -> (Unit, f64) {
        match self {
            Self::Launch => (Unit::Kernel, 1.0),
            Self::Stream(_) | Self::Function(_) | Self::Normalisation(_) => (Unit::Megabyte, 1.0),
            // Stochastic gradient descent with momentum reads gradient, parameter and velocity and writes the last two.
            Self::Update => (Unit::Megabyte, 5.0),
            Self::Product(_, pass, part) => {
                let backward = pass == Direction::Backward;
                match part {
                    // Two thirds of the peak.
                    Part::Arithmetic => (Unit::Gflop, 1.5),
                    Part::Depth => (Unit::Thousand, if backward { 1.5 } else { 1.0 }),
                    // Read, and once more to change its layout; backward it is read and its gradient written.
                    Part::Input => (Unit::Megabyte, if backward { 3.0 } else { 2.0 }),
                    Part::Output => (Unit::Megabyte, 2.0),
                    // Read; backward its gradient is also written, and then added to what has been accumulated.
                    Part::Parameters => (Unit::Megabyte, if backward { 5.0 } else { 1.0 }),
                }
            }
            Self::Window(pass, part) => match part {
                WindowPart::Moved | WindowPart::Places => (Unit::Megabyte, 1.0),
                // Forward most of what windows share is still in a cache.
                WindowPart::Covered => (Unit::Megabyte, if pass == Direction::Backward { 1.0 } else { 0.3 }),
            },
        }
    }

    /// How much more strongly than others the term is held to the textbook. What moves bytes in passing does little else, and
    /// must not take over what belongs to the products beside which it was measured.
    pub(super) fn certainty(self) -> f64 {
        match self {
            Self::Stream(_) | Self::Function(_) | Self::Normalisation(_) => 100.0,
            _ => 1.0,
        }
    }

    /// How many plain units one unit of the term costs at least: what has to be computed or moved once.
    pub(super) fn least(self) -> f64 {
        match self {
            Self::Launch | Self::Product(_, _, Part::Depth) | Self::Window(_, WindowPart::Covered) => 0.0,
            Self::Update => 5.0,
            _ => 1.0,
        }
    }

    /// The textbook's price on the device of this data sheet, in microseconds.
    pub(super) fn list_price_us(self, sheet: &DataSheet) -> f64 {
        let (unit, multiple) = self.textbook();
        multiple * unit.peak_us(sheet)
    }
}
