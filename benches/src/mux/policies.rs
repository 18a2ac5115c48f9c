//! Policies by name.

use gpu_mux::Policy;

use crate::command::bad_input;

/// Those that are asked for, or all: in their order.
pub(crate) fn named(names: &[String]) -> anyhow::Result<Vec<(String, Policy)>> {
    let all = Policy::all();
    if names.is_empty() {
        return Ok(all.into_iter().map(|(name, policy)| (name.to_owned(), policy)).collect());
    }
    let known = || all.iter().map(|(name, _)| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        let policy = Policy::named(name).map(|policy| (name.clone(), policy));
        policy.ok_or_else(|| bad_input(format!("no policy {name:?}: there are {}", known())))
    };
    names.iter().map(find).collect()
}
