//! The file format: output, and errors on invalid documents.

use std::time::Duration;

use layer_profile::{BatchTime, LayerProfile, LayerTime, NetworkTime, Origin, ProfileTable};

const GOLDEN: &str = r#"{
  "schema": "deeppool/profile/v1",
  "model": "net",
  "device": "box",
  "origin": "measured",
  "layers": [
    {
      "name": "conv",
      "kind": "conv2d",
      "update_us": 3.5,
      "times": [
        {
          "batch": 1,
          "forward_us": 10.0,
          "backward_us": 20.125,
          "forward_mad_us": 0.5,
          "backward_mad_us": 0.25
        },
        {
          "batch": 4,
          "forward_us": 30.0,
          "backward_us": 60.0
        }
      ]
    }
  ],
  "network": [
    {
      "batch": 1,
      "forward_us": 11.0,
      "backward_us": 21.0,
      "update_us": 3.0
    }
  ]
}"#;

/// Document as written by the profiler.
const MEASURED: &str = r#"{
  "schema": "deeppool/profile/v1",
  "model": "net",
  "device": "box",
  "origin": "measured",
  "measurement": {
    "profiler": "0.1.0",
    "libraries": {
      "layer-engine": "0.1.0"
    },
    "clock_mhz": 2300,
    "precision": "f32",
    "repeats": 10
  },
  "layers": [
    {
      "name": "relu",
      "kind": "relu",
      "structure": "relu, 4 -> 4",
      "update_us": 3.5,
      "update_mad_us": 0.25,
      "update_outliers": 1,
      "update_unsteady": true,
      "times": [
        {
          "batch": 1,
          "forward_us": 10.0,
          "backward_us": 20.125,
          "forward_mad_us": 0.5,
          "backward_mad_us": 0.25,
          "forward_outliers": 0,
          "backward_outliers": 2,
          "backward_unsteady": true
        }
      ]
    }
  ],
  "network": [
    {
      "batch": 1,
      "forward_us": 11.0,
      "backward_us": 21.0,
      "update_us": 3.0,
      "forward_mad_us": 0.5,
      "backward_mad_us": 0.25,
      "update_mad_us": 0.125,
      "forward_outliers": 0,
      "backward_outliers": 1,
      "update_outliers": 2,
      "forward_unsteady": true,
      "sum_of_layers": {
        "forward_us": 10.0,
        "backward_us": 20.125,
        "update_us": 3.5
      }
    }
  ]
}"#;

#[test]
fn golden_documents_round_trip() {
    for document in [GOLDEN, MEASURED] {
        let table = ProfileTable::from_json(document).expect("valid");
        assert_eq!(table.to_json(), document);
    }
}

#[test]
fn inconsistent_measurement_errors_name_the_path() {
    let cases = [
        (r#""repeats": 10"#, r#""repeats": 10, "colour": 1"#, "at `measurement.colour`: unknown field"),
        (r#""precision": "f32","#, "", "at `measurement`: missing field `precision`"),
        (
            r#""forward_us": 10.0,
        "#,
            r#""forward_us": 10.5,
        "#,
            "at `network[0].sum_of_layers.forward_us`: expected 10.5 us, the sum of the layers' times, found \
             10 us",
        ),
        (
            r#""update_mad_us": 0.25,"#,
            "",
            "at `layers[0]`: expected `update_mad_us` beside `update_unsteady`",
        ),
        (r#""update_us": 3.5,"#, "", "at `layers[0]`: expected `update_us` beside `update_mad_us`"),
        (
            r#""forward_mad_us": 0.5,"#,
            "",
            "at `layers[0].times[0]`: expected `forward_mad_us` beside `forward_outliers`",
        ),
        (
            r#""update_mad_us": 0.125,"#,
            "",
            "at `network[0]`: expected `update_mad_us` beside `update_outliers`",
        ),
        (
            r#""update_mad_us": 0.125,
      "forward_outliers": 0,
      "backward_outliers": 1,
      "update_outliers": 2,"#,
            r#""forward_outliers": 0, "backward_outliers": 1,"#,
            "at `network[0]`: expected all or none of `forward_mad_us`, `backward_mad_us` and \
             `update_mad_us`",
        ),
    ];
    for (from, to, expected) in cases {
        let text = MEASURED.replacen(from, to, 1);
        assert_ne!(text, MEASURED, "`{from}` is not in the document");
        let message = ProfileTable::from_json(&text).expect_err(to).to_string();
        assert!(message.contains(expected), "`{message}` does not contain `{expected}`");
    }
}

#[test]
fn invalid_document_errors_name_the_path() {
    // Text to replace in the golden document, its replacement, and the expected error.
    let cases = [
        ("deeppool/profile/v1", "deeppool/profile/v2", "at `schema`: expected `deeppool/profile/v1`, found"),
        (
            r#""origin": "measured""#,
            r#""origin": "guessed""#,
            "at `origin`: unknown variant `guessed`, expected",
        ),
        (r#""device": "box","#, "", "missing field `device`"),
        (r#""device": "box","#, r#""device": "box", "colour": 1,"#, "unknown field `colour`"),
        (r#""forward_us": 30.0,"#, "", "at `layers[0].times[1]`: missing field `forward_us`"),
        (
            r#""forward_us": 30.0"#,
            r#""forward_us": -30.0"#,
            "at `layers[0].times[1].forward_us`: expected a time in microseconds, not negative, found -30",
        ),
        (
            r#""forward_us": 30.0"#,
            r#""forward_us": 1e999"#,
            "at `layers[0].times[1].forward_us`: number out of range",
        ),
        (
            r#""forward_us": 30.0"#,
            r#""forward_us": 1e300"#,
            "at `layers[0].times[1].forward_us`: expected a time",
        ),
        (
            r#""forward_us": 30.0"#,
            r#""forward_us": 3e13"#,
            "at `layers[0].times[1].forward_us`: 3e13 us, expected at most 1e12 us (11 days): check the unit",
        ),
        (r#""forward_us": 30.0"#, r#""forward_us": "x""#, "at `layers[0].times[1].forward_us`: invalid type"),
        (
            r#""batch": 4"#,
            r#""batch": 1"#,
            "at `layers[0].times[1].batch`: expected batch sizes in ascending order",
        ),
        (
            r#""batch": 1"#,
            r#""batch": 0"#,
            "at `layers[0].times[0].batch`: expected at least one sample, found 0",
        ),
        (r#""batch": 4"#, r#""batch": 4.5"#, "at `layers[0].times[1].batch`: invalid type"),
        (r#""forward_mad_us": 0.5,"#, "", "at `layers[0].times[0]`: expected both or none of"),
        ("}\n  ]\n}", "}\n  ]\n", "EOF while parsing"),
    ];
    for (from, to, expected) in cases {
        let text = GOLDEN.replacen(from, to, 1);
        assert_ne!(text, GOLDEN, "`{from}` is not in the document");
        let message = ProfileTable::from_json(&text).expect_err(to).to_string();
        assert!(message.starts_with("not a valid profile: "), "{message}");
        assert!(message.contains(expected), "`{message}` does not contain `{expected}`");
    }
}

#[test]
fn empty_and_repeated_rows_are_rejected() {
    let document = |layers: &str| {
        let head = r#""schema":"deeppool/profile/v1","model":"m","device":"d","origin":"imported""#;
        ProfileTable::from_json(&format!(r#"{{{head},"layers":[{layers}],"network":[]}}"#))
    };
    let row = r#"{"name":"a","kind":"relu","times":[{"batch":1,"forward_us":1,"backward_us":1}]}"#;
    assert!(document(row).is_ok());
    let message = |layers: &str| document(layers).expect_err(layers).to_string();
    assert!(message("").contains("at `layers`: expected at least one layer"));
    assert!(message(&format!("{row},{row}")).contains("at `layers[1].name`: layer `a` has a row already"));
    assert!(message(r#"{"name":"a","kind":"relu","times":[]}"#).contains("at `layers[0].times`"));
}

#[test]
fn invalid_parts_are_rejected() {
    let document = |parts: &str| {
        let head = r#""schema":"deeppool/profile/v1","model":"m","device":"d","origin":"measured""#;
        let times = r#""times":[{"batch":1,"forward_us":1,"backward_us":1}]"#;
        let layers = format!(r#"[{{"name":"a","kind":"relu",{times}}}]"#);
        let parts = parts.replace("TIMES", times);
        ProfileTable::from_json(&format!(r#"{{{head},"layers":{layers},"network":[],"parts":[{parts}]}}"#))
    };
    let row = r#"{"name":"a","kind":"relu","structure":"relu, 4 -> 4",TIMES}"#;
    assert_eq!(document(row).expect("valid").parts().len(), 1);
    assert_eq!(document(&format!("{row},{}", row.replace('4', "5"))).expect("valid").parts().len(), 2);
    let message = |parts: &str| document(parts).expect_err(parts).to_string();
    assert!(
        message(&format!("{row},{row}")).contains("at `parts[1]`: layer `a` has a row for the part relu")
    );
    let of_another = message(&row.replace(r#""a""#, r#""b""#));
    assert!(
        of_another.contains("at `parts[0].name`: expected the name of a layer, found `b`"),
        "{of_another}"
    );
    let bare = message(r#"{"name":"a","kind":"relu",TIMES}"#);
    assert!(bare.contains("at `parts[0].structure`"), "{bare}");
    let empty = message(r#"{"name":"a","kind":"relu","structure":"relu, 4 -> 4","times":[]}"#);
    assert!(empty.contains("at `parts[0].times`"), "{empty}");
}

#[test]
fn documents_with_missing_or_more_text_are_rejected() {
    let error = ProfileTable::from_json("{").expect_err("truncated").to_string();
    assert!(error.starts_with("not a valid profile"), "{error}");
    let error = ProfileTable::from_json(&format!("{GOLDEN} 1")).expect_err("longer").to_string();
    assert!(error.starts_with("not a valid profile: at `.`: trailing characters"), "{error}");
}

#[test]
fn disturbed_measurements_are_detected_by_their_sum() {
    let us = Duration::from_micros;
    let table = |origin: Origin, whole_us: u64| {
        let rows = vec![BatchTime { batch: 4, forward: us(300), backward: us(0), spread: None }];
        let layer = LayerProfile {
            name: "fc".into(),
            kind: "linear".into(),
            structure: None,
            update: None,
            update_spread: None,
            times: rows,
        };
        let time = LayerTime { forward: us(whole_us), backward: us(0), update: us(0) };
        let whole = vec![NetworkTime { batch: 4, time, spread: None }];
        ProfileTable::new("net", "here", origin, vec![layer], whole).expect("valid")
    };
    for us in [200, 300, 470] {
        assert!(table(Origin::Measured, us).check_undisturbed().is_ok(), "{us}");
    }
    for us in [170, 500] {
        let error = table(Origin::Measured, us).check_undisturbed().expect_err("disturbed").to_string();
        assert!(error.contains("batch 4") && error.contains("300.0µs"), "{error}");
        assert!(table(Origin::Modelled, us).check_undisturbed().is_ok(), "sums need not agree there");
    }
}
