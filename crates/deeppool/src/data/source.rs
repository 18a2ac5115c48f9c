//! Data sources and their notation.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::DataError;

/// Source of training data. As text: `digits`, `mnist:DIR`, `cifar10:DIR`, `safetensors:FILE`,
/// `synthetic` (seed 0) or `synthetic:SEED`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataSource {
    /// The handwritten digits that are included in the crate.
    Digits,
    /// The files of MNIST, or of a data set in its format, in this folder.
    Mnist(PathBuf),
    /// The binary files of CIFAR-10 in this folder.
    Cifar10(PathBuf),
    /// The tensors `train.inputs`, `train.labels`, `test.inputs` and `test.labels` of this
    /// safetensors file. Without the test tensors, every fifth sample is held out. Other tensors
    /// are refused.
    Tensors(PathBuf),
    /// Synthetic data, generated for the network.
    Synthetic {
        /// Seed of the data, independent of the seed of the training run.
        seed: u64,
    },
}

impl FromStr for DataSource {
    type Err = DataError;

    fn from_str(spec: &str) -> Result<Self, DataError> {
        let (name, argument) = match spec.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (spec, None),
        };
        let problem = |problem| DataError::Argument { spec: spec.into(), problem };
        let path = |missing| match argument {
            None | Some("") => Err(problem(missing)),
            Some(path) => Ok(PathBuf::from(path)),
        };
        match (name, argument) {
            ("digits", None) => Ok(Self::Digits),
            ("digits", Some(_)) => Err(problem("takes no argument")),
            ("mnist", _) => path("the folder of its files is missing, as in `mnist:DIR`").map(Self::Mnist),
            ("cifar10", _) => {
                path("the folder of its files is missing, as in `cifar10:DIR`").map(Self::Cifar10)
            }
            ("safetensors", _) => path("the file is missing, as in `safetensors:FILE`").map(Self::Tensors),
            ("synthetic", None) => Ok(Self::Synthetic { seed: 0 }),
            ("synthetic", Some(seed)) => match seed.parse() {
                Ok(seed) => Ok(Self::Synthetic { seed }),
                Err(_) => Err(problem("the seed must be a whole number from 0 to 2^64 - 1")),
            },
            _ => Err(DataError::UnknownSource { spec: spec.into() }),
        }
    }
}

impl fmt::Display for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digits => f.write_str("digits"),
            Self::Mnist(folder) => write!(f, "mnist:{}", folder.display()),
            Self::Cifar10(folder) => write!(f, "cifar10:{}", folder.display()),
            Self::Tensors(file) => write!(f, "safetensors:{}", file.display()),
            Self::Synthetic { seed } => write!(f, "synthetic:{seed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_parse_as_displayed() {
        for spec in
            ["digits", "mnist:a/b", "cifar10:C:/data", "safetensors:a.b", "synthetic:18446744073709551615"]
        {
            assert_eq!(spec.parse::<DataSource>().unwrap().to_string(), spec);
        }
        assert_eq!("synthetic".parse::<DataSource>().unwrap(), DataSource::Synthetic { seed: 0 });
        let known =
            "known data sets: digits, mnist:DIR, cifar10:DIR, safetensors:FILE, synthetic, synthetic:SEED";
        for (spec, complaint) in [
            ("imagenet", format!("unknown data set `imagenet`; {known}")),
            ("", format!("unknown data set ``; {known}")),
            ("mnist", "data set `mnist`: the folder of its files is missing, as in `mnist:DIR`".into()),
            (
                "cifar10:",
                "data set `cifar10:`: the folder of its files is missing, as in `cifar10:DIR`".into(),
            ),
            ("safetensors", "data set `safetensors`: the file is missing, as in `safetensors:FILE`".into()),
            ("digits:x", "data set `digits:x`: takes no argument".into()),
            (
                "synthetic:-1",
                "data set `synthetic:-1`: the seed must be a whole number from 0 to 2^64 - 1".into(),
            ),
        ] {
            assert_eq!(spec.parse::<DataSource>().unwrap_err().to_string(), complaint);
        }
    }
}
