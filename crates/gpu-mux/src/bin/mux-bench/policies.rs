//! Policies by name.

use gpu_mux::Policy;

use crate::bad_input;

/// Those that are asked for, or all: the presets, and the ladder without what is a preset already.
pub(crate) fn named(names: &[String]) -> anyhow::Result<Vec<(String, Policy)>> {
    let all = all();
    if names.is_empty() {
        return Ok(all);
    }
    let known = || all.iter().map(|(name, _)| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        let found = all.iter().find(|(known, _)| known == name);
        found.cloned().ok_or_else(|| bad_input(format!("no policy {name:?}: there are {}", known())))
    };
    names.iter().map(find).collect()
}

fn all() -> Vec<(String, Policy)> {
    let presets = Policy::presets();
    let is_preset = |name: &str| presets.iter().any(|(preset, _)| *preset == name);
    let steps = Policy::ladder().into_iter().filter(|(name, _)| !is_preset(name));
    let all = presets.iter().copied().chain(steps);
    all.map(|(name, policy)| (name.to_owned(), policy)).collect()
}
