//! The variations for people.

use super::headline::HEADLINES;
use super::variation::PARAMETERS;
use super::{Row, Sensitivity};
use crate::text_table::{printed, text_table};

impl Sensitivity {
    /// A line a headline of each workload, with what it is under each variation, and which conclusions flip.
    pub(super) fn printed(&self) -> String {
        let columns = PARAMETERS.iter().map(|parameter| {
            let changes: Vec<String> =
                parameter.factors().iter().map(|&factor| parameter.change(factor)).collect();
            format!("{}\n{}", parameter.label(), changes.join(" / "))
        });
        let first = ["workload\n".to_owned(), "headline\n".into(), "as\nit is".into()];
        let mut table = text_table(first.into_iter().chain(columns), 2..);
        for (index, group) in self.groups().enumerate() {
            let [base, varied @ ..] = group else { continue };
            let title = if index % HEADLINES.len() == 0 { base.title.as_str() } else { "" };
            let mut cells = vec![title.to_owned(), base.headline.into(), format!("{:.2}", base.value)];
            for parameter in PARAMETERS {
                let of_parameter =
                    varied.iter().filter(|row| row.parameter.as_deref() == Some(parameter.label()));
                let value = |row: &Row| format!("{:.2}{}", row.value, if row.flips { "*" } else { "" });
                cells.push(of_parameter.map(value).collect::<Vec<_>>().join(" / "));
            }
            table.add_row(cells);
        }
        let table = printed(&table);
        let mut lines = vec![
            format!(
                "How conclusions move when parameters of the models are off by half ({})",
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

    /// Which conclusions flip, and what moves each number most.
    pub(super) fn summary(&self) -> Vec<String> {
        let flips: Vec<String> = self.rows.iter().filter(|row| row.flips).map(flip).collect();
        let mut lines = if flips.is_empty() {
            vec!["* No conclusion flips: no number that is above 1 comes to 1 or below, and none the other way.".into()]
        } else {
            std::iter::once("* Conclusions that flip:".to_owned()).chain(flips).collect()
        };
        lines.push("What moves each number most:".into());
        lines.extend(self.groups().filter_map(|group| {
            let by = |row: &&Row| (row.value / row.base).ln().abs();
            let most = group.iter().max_by(|a, b| by(a).total_cmp(&by(b)))?;
            let (parameter, change) = (most.parameter.as_deref()?, most.change.as_deref()?);
            let Row { title, headline, value, base, .. } = most;
            Some(format!("  {title}: {headline}: {base:.2} to {value:.2} with {parameter} {change}"))
        }));
        lines
    }
}

fn flip(row: &Row) -> String {
    let Row { title, headline, value, base, .. } = row;
    let (parameter, change) =
        (row.parameter.as_deref().unwrap_or_default(), row.change.as_deref().unwrap_or_default());
    format!("  {title}: {headline} goes from {base:.2} to {value:.2} with {parameter} {change}")
}
