//! Documents of curves: round trips and errors.

use proptest::prelude::*;
use time_to_accuracy::{AccuracyError, EpochCurve, Origin};

use crate::random::curves;

const GOLDEN: &str = r#"{
  "schema": "deeppool/epoch-curve/v1",
  "network": "net",
  "dataset": "data",
  "target": "accuracy 0.97",
  "origin": "measured",
  "source": "a command",
  "samples_per_epoch": 1000,
  "points": [
    {
      "batch": 16,
      "epochs": 4.5,
      "epochs_min": 4.0,
      "epochs_max": 5.0,
      "runs": 2
    },
    {
      "batch": 64,
      "epochs": 8.0,
      "missed": 1
    }
  ]
}
"#;

#[test]
fn documents_round_trip_byte_for_byte() -> Result<(), AccuracyError> {
    let curve = EpochCurve::from_json(GOLDEN)?;
    assert_eq!(curve.to_json(), GOLDEN);
    assert_eq!((curve.range(), curve.document().origin), ((16, 64), Origin::Measured));
    assert_eq!(curve.document().origin.to_string(), "measured");
    // Between points, the range is known only if both ends have one, and missed runs are taken from
    // both ends.
    let between = curve.epochs(32)?;
    assert_eq!((between.mean, between.range, between.missed), (6.25, None, 1));
    assert_eq!(curve.epochs(16)?.range, Some((4.0, 5.0)));
    Ok(())
}

#[test]
fn format_errors_name_the_position() {
    let cases = [
        (
            "epoch-curve/v1",
            "epoch-curve/v2",
            "at `schema`: unknown variant `deeppool/epoch-curve/v2`, expected `deep",
        ),
        (r#""net""#, r#"" ""#, "at `network`: expected the name of the network, found nothing"),
        (
            r#""a command""#,
            r#""""#,
            "at `source`: expected where the points come from: a publication, or the command",
        ),
        (r#""source": "a command","#, "", "missing field `source`"),
        (
            r#""measured""#,
            r#""guessed""#,
            "at `origin`: unknown variant `guessed`, expected one of `published`,",
        ),
        ("1000", "0", "at `samples_per_epoch`: expected the samples of an epoch, at least 1, found 0"),
        ("1000", "1000, \"colour\": 1", "at `colour`: unknown field `colour`"),
        (r#""runs": 2"#, r#""runs": 2, "colour": 1"#, "at `points[0].colour`: unknown field `colour`"),
        (
            r#""runs": 2"#,
            r#""runs": 0"#,
            "at `points[0].runs`: expected at least one run that reached the target",
        ),
        (r#""batch": 16"#, r#""batch": 0"#, "at `points[0].batch`: expected at least one sample, found 0"),
        (
            r#""batch": 64"#,
            r#""batch": 8"#,
            "at `points[1].batch`: expected batches in ascending order, found 8 after 16: sort the points",
        ),
        (r#""batch": 64"#, r#""batch": 16"#, "at `points[1].batch`: batch 16 is there twice"),
        (
            r#""epochs": 8.0"#,
            r#""epochs": 0"#,
            "at `points[1].epochs`: expected a finite number of epochs above 0",
        ),
        (
            r#""epochs": 8.0"#,
            r#""epochs": -1"#,
            "at `points[1].epochs`: expected a finite number of epochs above 0",
        ),
        (r#""epochs": 8.0"#, r#""epochs": 1e999"#, "at `points[1].epochs`: number out of range"),
        (r#""epochs": 8.0"#, r#""epochs": NaN"#, "expected value"),
        (
            r#""epochs_min": 4.0"#,
            r#""epochs_min": 4.6"#,
            "at `points[0].epochs_min`: expected at most the mean, 4.5",
        ),
        (
            r#""epochs_max": 5.0"#,
            r#""epochs_max": 4.4"#,
            "at `points[0].epochs_max`: expected at least the mean, 4.5",
        ),
        (
            r#""epochs_max": 5.0,"#,
            "",
            "at `points[0]`: expected both or none of `epochs_min` and `epochs_max`",
        ),
        ("]\n}", "]\n} {", "at `.`: trailing characters"),
    ];
    for (from, to, expected) in cases {
        let text = GOLDEN.replacen(from, to, 1);
        assert_ne!(text, GOLDEN, "`{from}` is not in the document");
        let message = EpochCurve::from_json(&text).expect_err(to).to_string();
        assert!(message.starts_with("not a valid epoch curve: "), "{message}");
        assert!(message.contains(expected), "`{message}` does not contain `{expected}`");
    }
}

#[test]
fn non_finite_figures_are_rejected() -> Result<(), AccuracyError> {
    let document = EpochCurve::from_json(GOLDEN)?.document().clone();
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
        let mut document = document.clone();
        document.points[1].epochs = bad;
        let message = EpochCurve::new(document.clone()).expect_err("bad").to_string();
        assert!(message.contains("at `points[1].epochs`: expected a finite number"), "{message}");
        document.points[1].epochs = 8.0;
        document.points[0].epochs_min = Some(bad);
        assert!(EpochCurve::new(document).is_err());
    }
    let mut empty = document;
    empty.points.clear();
    assert!(
        EpochCurve::new(empty)
            .expect_err("empty")
            .to_string()
            .contains("at `points`: expected at least one point")
    );
    Ok(())
}

#[test]
fn built_in_curves_name_their_sources() -> Result<(), AccuracyError> {
    for name in EpochCurve::names() {
        let curve = EpochCurve::named(name)?;
        let document = curve.document();
        assert_eq!((document.network.as_str(), document.origin), (name, Origin::Published));
        assert_eq!(document.licence.as_deref(), Some("Apache-2.0"));
        assert!(document.source.contains("github.com/mlcommons/") && curve.points().len() >= 4);
    }
    let message = EpochCurve::named("bert").expect_err("unknown").to_string();
    assert_eq!(
        message,
        "no epoch curve is called `bert`; there are: gnmt, resnet-50. Others are read from files"
    );
    Ok(())
}

proptest! {
    #[test]
    fn random_documents_round_trip(curve in curves()) {
        // The JSON reader may round the last of more digits differently.
        let mut document = curve.document().clone();
        for point in &mut document.points {
            let all = [Some(&mut point.epochs), point.epochs_min.as_mut(), point.epochs_max.as_mut()];
            for epochs in all.into_iter().flatten() {
                *epochs = ((*epochs * 1e6).round() / 1e6).max(1e-6);
            }
        }
        let curve = EpochCurve::new(document).expect("valid");
        prop_assert_eq!(EpochCurve::from_json(&curve.to_json()).expect("valid"), curve);
    }

    #[test]
    fn arbitrary_text_never_panics(
        at in 0..GOLDEN.len(), length in 0..40_usize, with in "[0-9eE.,:{}\"\\[\\]-]{0,5}"
    ) {
        let end = (at + length).min(GOLDEN.len());
        let text = format!("{}{with}{}", &GOLDEN[..at], &GOLDEN[end..]);
        if let Ok(curve) = EpochCurve::from_json(&text) {
            let (smallest, largest) = curve.range();
            prop_assert!(curve.epochs(smallest).is_ok() && curve.epochs(largest).is_ok());
        }
    }
}
