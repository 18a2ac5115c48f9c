//! Results of the experiment `sensitivity` as text. A *headline ratio* is a throughput ratio on
//! which a conclusion rests; a *variation* is one parameter of the models changed by one factor.

use super::headline::HEADLINES;
use super::variation::PARAMETERS;
use super::{Sensitivity, SensitivityRow};
use crate::text_table::{printed, text_table};

impl Sensitivity {
    /// Formats the origin of the numbers, a line for each headline ratio of a workload with its
    /// value under each variation, and the findings.
    pub(super) fn printed(&self) -> String {
        let columns = PARAMETERS.iter().map(|parameter| {
            let changes: Vec<String> =
                parameter.factors().iter().map(|&factor| parameter.change(factor)).collect();
            format!("{}\n{}", parameter.label(), changes.join(" / "))
        });
        let first = ["workload\n".to_owned(), "headline\n".into(), "base\nvalue".into()];
        let mut table = text_table(first.into_iter().chain(columns), 2..);
        for (index, group) in self.groups().enumerate() {
            let [base, varied @ ..] = group else { continue };
            let title = if index % HEADLINES.len() == 0 { base.title.as_str() } else { "" };
            let mut cells = vec![title.to_owned(), base.headline.into(), format!("{:.2}", base.value)];
            for parameter in PARAMETERS {
                let of_parameter =
                    varied.iter().filter(|row| row.parameter.as_deref() == Some(parameter.label()));
                let value =
                    |row: &SensitivityRow| format!("{:.2}{}", row.value, if row.flips { "*" } else { "" });
                cells.push(of_parameter.map(value).collect::<Vec<_>>().join(" / "));
            }
            table.add_row(cells);
        }
        let table = printed(&table);
        let mut lines = vec![
            format!(
                "Sensitivity of the conclusions to errors of the models' parameters by half ({})",
                self.header.experiment
            ),
            self.provenance().join("\n"),
            String::new(),
            table,
            String::new(),
        ];
        lines.extend(HEADLINES.map(|headline| format!("{:31} {}", headline.label(), headline.about())));
        lines.extend(PARAMETERS.map(|parameter| format!("{:31} {}", parameter.label(), parameter.about())));
        lines.push(String::new());
        lines.extend(self.summary());
        lines.join("\n") + "\n"
    }

    /// Returns the findings, one line each: the ratios that cross 1, and the variation that changes
    /// each ratio most.
    pub(super) fn summary(&self) -> Vec<String> {
        let flips: Vec<String> = self.rows.iter().filter(|row| row.flips).map(flip).collect();
        let mut lines = if flips.is_empty() {
            vec!["* No conclusion flips: no ratio crosses 1.".into()]
        } else {
            std::iter::once("* Conclusions that flip:".to_owned()).chain(flips).collect()
        };
        lines.push("Variation that changes each ratio most:".into());
        lines.extend(self.groups().filter_map(|group| {
            let by = |row: &&SensitivityRow| (row.value / row.base).ln().abs();
            let most = group.iter().max_by(|a, b| by(a).total_cmp(&by(b)))?;
            let (parameter, change) = (most.parameter.as_deref()?, most.change.as_deref()?);
            let SensitivityRow { title, headline, value, base, .. } = most;
            Some(format!("  {title}: {headline}: {base:.2} to {value:.2} with {parameter} {change}"))
        }));
        lines
    }
}

fn flip(row: &SensitivityRow) -> String {
    let SensitivityRow { title, headline, value, base, .. } = row;
    let (parameter, change) =
        (row.parameter.as_deref().unwrap_or_default(), row.change.as_deref().unwrap_or_default());
    format!("  {title}: {headline} goes from {base:.2} to {value:.2} with {parameter} {change}")
}
