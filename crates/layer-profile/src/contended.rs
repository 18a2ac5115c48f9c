//! Times of layers while several ranks of one machine compute at once.

use std::time::Duration;

use crate::{LayerProfile, LayerTime, ProfileError};

/// Maximum relative time by which the slowest rank may be late.
const MAX_JITTER: f64 = 100.0;

/// Times of the layers of a network while all of several ranks compute at once. The ranks share the
/// caches, the memory bandwidth and the cores of one machine.
///
/// Belongs to a [`ProfileTable`](crate::ProfileTable), whose times are those of one rank alone.
#[derive(Debug, Clone, PartialEq)]
pub struct ContendedTimes {
    ranks: usize,
    jitter: f64,
    layers: Vec<LayerProfile>,
}

impl ContendedTimes {
    /// Creates the times of `ranks` ranks. `layers` are the rows of the layers, in the order of the
    /// table to which the times belong.
    ///
    /// `jitter` is the relative time by which the slowest rank of an iteration computes longer than
    /// the sum of the layers' times: 0.02 for 2%.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] for less than two ranks, or for a jitter that is not from 0 to
    /// 100.
    pub fn new(ranks: usize, jitter: f64, layers: Vec<LayerProfile>) -> Result<Self, ProfileError> {
        if ranks < 2 {
            return Err(invalid("contended.ranks", format!("expected at least 2 ranks, found {ranks}")));
        }
        if !(0.0..=MAX_JITTER).contains(&jitter) {
            let problem = format!("expected a relative time such as 0.02, from 0 to 100, found {jitter}");
            return Err(invalid("contended.jitter", problem));
        }
        Ok(Self { ranks, jitter, layers })
    }

    /// Number of ranks that computed at once: at least 2.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Relative time by which the slowest rank of an iteration computes longer than the sum of the
    /// layers' times. At least 0.
    #[must_use]
    pub fn jitter(&self) -> f64 {
        self.jitter
    }

    /// Times of the layers, in the order of the table.
    #[must_use]
    pub fn layers(&self) -> &[LayerProfile] {
        &self.layers
    }

    /// Returns the times of a layer while `computing` ranks compute at once, on average over the
    /// layer's time. `alone` are its times on one rank alone, and `contended` those on
    /// [`ranks`](Self::ranks) ranks, to which the [jitter](Self::jitter) is added: ranks that
    /// compute at once wait for the slowest of them. Linear in between, and constant outside.
    #[must_use]
    pub fn interpolate(&self, alone: LayerTime, contended: LayerTime, computing: f64) -> LayerTime {
        let share = ((computing - 1.0) / (self.ranks - 1) as f64).clamp(0.0, 1.0);
        // Of a number that is none, as of one rank.
        let share = if share.is_nan() { 0.0 } else { share };
        let between = |alone: Duration, contended: Duration| {
            alone.mul_f64(1.0 - share).saturating_add(contended.mul_f64(share * (1.0 + self.jitter)))
        };
        LayerTime {
            forward: between(alone.forward, contended.forward),
            backward: between(alone.backward, contended.backward),
            update: between(alone.update, contended.update),
        }
    }

    /// Multiplies all times by `factor`.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.layers.iter_mut().for_each(|layer| layer.scale(factor));
    }

    /// Checks that the rows are of the same layers and batch sizes as `alone`.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] if they are not.
    pub(crate) fn check(&self, alone: &[LayerProfile]) -> Result<(), ProfileError> {
        if self.layers.len() != alone.len() {
            let problem = format!("expected {} layers, found {}", alone.len(), self.layers.len());
            return Err(invalid("contended.layers", problem));
        }
        let batches = |row: &LayerProfile| row.times.iter().map(|time| time.batch).collect::<Vec<_>>();
        for (i, (alone, contended)) in alone.iter().zip(&self.layers).enumerate() {
            let path = format!("contended.layers[{i}]");
            if alone.name != contended.name {
                let problem = format!("expected layer `{}`, found `{}`", alone.name, contended.name);
                return Err(invalid(path, problem));
            }
            if batches(alone) != batches(contended) || alone.update.is_some() != contended.update.is_some() {
                let problem = format!("expected the batch sizes and the update of layer `{}`", alone.name);
                return Err(invalid(path, problem));
            }
        }
        Ok(())
    }
}

fn invalid(path: impl Into<String>, problem: impl Into<String>) -> ProfileError {
    ProfileError::Invalid { path: path.into(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{BatchTime, Origin, ProfileTable};

    fn time(forward: u64, backward: u64, update: u64) -> LayerTime {
        let us = Duration::from_micros;
        LayerTime { forward: us(forward), backward: us(backward), update: us(update) }
    }

    fn row(name: &str, forward: u64) -> LayerProfile {
        let us = Duration::from_micros;
        LayerProfile {
            name: name.into(),
            kind: "linear".into(),
            structure: None,
            update: Some(us(7)),
            update_spread: None,
            times: vec![BatchTime {
                batch: 4,
                forward: us(forward),
                backward: us(2 * forward),
                spread: None,
            }],
        }
    }

    proptest! {
        #[test]
        fn interpolation_is_between_alone_and_contended(
            alone in 0..1_000_000u64,
            contended in 0..1_000_000u64,
            ranks in 2..9usize,
            computing in 0.0..12.0,
        ) {
            let of = |us: u64| time(us, us, us);
            let times = ContendedTimes::new(ranks, 0.0, Vec::new()).unwrap();
            let at = |computing: f64| times.interpolate(of(alone), of(contended), computing).forward;
            prop_assert_eq!(at(1.0), Duration::from_micros(alone));
            prop_assert_eq!(at(ranks as f64), Duration::from_micros(contended));
            let (low, high) = (alone.min(contended), alone.max(contended));
            let range = Duration::from_micros(low)..=Duration::from_micros(high) + Duration::from_nanos(2);
            prop_assert!(range.contains(&(at(computing) + Duration::from_nanos(1))));
        }
    }

    #[test]
    fn documents_keep_contended_times() {
        let table = |rows| ProfileTable::new("net", "a core", Origin::Measured, rows, Vec::new()).unwrap();
        let contended = ContendedTimes::new(2, 0.03, vec![row("a", 15), row("b", 30)]).unwrap();
        let alone = table(vec![row("a", 10), row("b", 20)]).with_contended(contended).unwrap();
        assert_eq!(ProfileTable::from_json(&alone.to_json()).unwrap(), alone);
        let text = alone.to_json().replace("\"jitter\": 0.03", "\"jitter\": -1");
        let error = ProfileTable::from_json(&text).unwrap_err().to_string();
        assert!(error.contains("contended.jitter"), "{error}");
    }

    #[test]
    fn contended_rows_must_match_the_table() {
        let table = || ProfileTable::new("net", "a core", Origin::Measured, vec![row("a", 1)], Vec::new());
        let with = |rows| table().unwrap().with_contended(ContendedTimes::new(2, 0.0, rows).unwrap());
        assert!(with(vec![row("a", 2)]).is_ok());
        assert!(with(Vec::new()).unwrap_err().to_string().contains("expected 1 layers, found 0"));
        assert!(with(vec![row("b", 2)]).unwrap_err().to_string().contains("expected layer `a`"));
        assert!(ContendedTimes::new(1, 0.0, Vec::new()).is_err());
    }
}
